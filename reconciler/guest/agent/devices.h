/* The devices of the VM: their drivers, and waiting until they are there. */
#ifndef BOX_DEVICES_H
#define BOX_DEVICES_H

/* Loads the modules that /modules/order names, one file a line, in that order. */
void devices_load(void);

/* Waits for the root disk and the ports box.0 to box.15 (fewer with box.ports=N), and opens the ports. */
void devices_wait(void);

#endif
