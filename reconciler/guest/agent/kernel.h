/* Constants and structures of the Linux user API. They are repeated here because musl's own include
 * directory has no linux/ headers, and the agent must build with musl-gcc as well as with zig cc.
 * Each names the header of the kernel's include/uapi it is from. */
#ifndef BOX_KERNEL_H
#define BOX_KERNEL_H

#include <stdint.h>

/* linux/random.h */
#define RNDADDENTROPY 0x40085203 /* _IOW('R', 0x03, int[2]) */
#define RNDRESEEDCRNG 0x5207	 /* _IO('R', 0x07) */

struct rand_pool_info {
	int entropy_count; /* bits */
	int buf_size;	   /* bytes */
	uint32_t buf[16];  /* a flexible array there */
};

/* linux/fs.h */
#define BLKFLSBUF 0x1261 /* _IO(0x12, 97) */

/* asm-generic/unistd.h */
#define CLOSE_RANGE 436

/* linux/netlink.h */
#define NETLINK_KOBJECT_UEVENT 15

struct sockaddr_nl {
	uint16_t nl_family;
	uint16_t nl_pad;
	uint32_t nl_pid;
	uint32_t nl_groups;
};

/* lib/kobject_uevent.c: the kernel's own events go to this group. */
#define UEVENT_GROUP_KERNEL 1

#endif
