/* The root directory of the guest, made of the image. */
#ifndef BOX_ROOT_H
#define BOX_ROOT_H

/* Mounts /proc, /sys and /dev below a directory. */
void root_mount_kernel(const char *below);

/* Mounts the root image, under an overlay in memory unless the kernel's command line says
 * box.readonly=1, and makes it the root directory of this process and its children. */
void root_enter(void);

#endif
