/* A guest's first process that loads the initrd's modules, mounts the root image and tells what it
 * sees on the console: the images are tried without the product's agent. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void load(const char *name)
{
	char path[300];

	snprintf(path, sizeof path, "/modules/%s", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0)
		printf("FAILED %s: %s\n", name, strerror(errno));
	close(fd);
}

static void load_all(void)
{
	char line[256];
	FILE *order = fopen("/modules/order", "re");

	while (order && fgets(line, sizeof line, order)) {
		line[strcspn(line, "\n")] = 0;
		load(line);
	}
}

static void show(const char *path)
{
	struct stat s;

	if (lstat(path, &s) < 0)
		printf("FAILED %s: %s\n", path, strerror(errno));
	else
		printf("SEEN %s %o %u:%u\n", path, s.st_mode, s.st_uid, s.st_gid);
}

int main(void)
{
	mount("devtmpfs", "/dev", "devtmpfs", 0, "");
	load_all();
	if (mount("/dev/vda", "/newroot", "erofs", MS_RDONLY, "") < 0 &&
	    mount("/dev/vda", "/newroot", "squashfs", MS_RDONLY, "") < 0)
		printf("FAILED mount: %s\n", strerror(errno));
	show("/newroot");
	show("/newroot/tmp");
	show("/newroot/bin/su");
	show("/newroot/usr/bin/env");
	show("/newroot/etc/shadow");
	if (chroot("/newroot") == 0 && chdir("/") == 0 && fork() == 0) {
		execl("/bin/sh", "sh", "-c", "echo SAID $((6 * 7))", (char *)0);
		_exit(127);
	}
	sleep(2);
	printf("END\n");
	fflush(stdout);
	reboot(RB_AUTOBOOT);
	return 0;
}
