/* What the first process of the guest does before it can serve. */
#ifndef BOX_BOOT_H
#define BOX_BOOT_H

/* Loads the modules, makes the root directory out of the image, opens the ports. Ends the VM when it
 * cannot. */
void boot(void);

#endif
