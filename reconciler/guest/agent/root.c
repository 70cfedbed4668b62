#include "root.h"

#include "power.h"
#include "sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define IMAGE "/image"	 /* the read-only root image */
#define MEMORY "/memory" /* what the overlay writes to */
#define ROOT "/root"
#define ROOT_DISK "/dev/vda"

static void make_directory(const char *path)
{
	/* Where the root is read-only the image has it, or the mount says that it does not. */
	if (mkdir(path, 0755) < 0 && errno != EEXIST && errno != EROFS)
		power_fail(path);
}

static void mount_at(const char *path, const char *type, unsigned long flags, const char *options)
{
	make_directory(path);
	if (mount(type, path, type, flags, options) < 0)
		power_fail(path);
}

static bool is_readonly(void)
{
	char line[4096];
	char *rest = line;

	if (read_text("/proc/cmdline", line, sizeof(line)) < 0)
		power_fail("/proc/cmdline");
	for (char *word; (word = strsep(&rest, " "));) {
		if (strcmp(word, "box.readonly=1") == 0)
			return true;
	}
	return false;
}

void root_mount_kernel(const char *below)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/proc", below);
	mount_at(path, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, "");
	snprintf(path, sizeof(path), "%s/sys", below);
	mount_at(path, "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "");
	snprintf(path, sizeof(path), "%s/dev", below);
	mount_at(path, "devtmpfs", MS_NOSUID, "mode=0755");
}

static void mount_image(const char *path)
{
	make_directory(path);
	if (mount(ROOT_DISK, path, "erofs", MS_RDONLY, "") == 0)
		return;
	if (mount(ROOT_DISK, path, "squashfs", MS_RDONLY, "") < 0)
		power_fail("cannot mount the root image as erofs or squashfs");
}

static void mount_overlay(void)
{
	struct stat top;

	mount_image(IMAGE);
	mount_at(MEMORY, "tmpfs", 0, "mode=0700");
	make_directory(MEMORY "/upper");
	make_directory(MEMORY "/work");
	/* The top directory of an overlay is the upper one's. */
	if (stat(IMAGE, &top) < 0 || chmod(MEMORY "/upper", top.st_mode & 07777) < 0 ||
	    chown(MEMORY "/upper", top.st_uid, top.st_gid) < 0)
		power_fail(MEMORY);
	mount_at(ROOT, "overlay", 0, "lowerdir=" IMAGE ",upperdir=" MEMORY "/upper,workdir=" MEMORY "/work");
}

/* As switch_root does: the initrd's own files stay behind, in reach of nobody. */
static void switch_root(void)
{
	unlink("/init");
	if (chdir(ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
	    chdir("/") < 0)
		power_fail("cannot enter the root image");
}

static void link_descriptors(void)
{
	static const char *const links[][2] = {
		{ "/proc/self/fd", "/dev/fd" },
		{ "/proc/self/fd/0", "/dev/stdin" },
		{ "/proc/self/fd/1", "/dev/stdout" },
		{ "/proc/self/fd/2", "/dev/stderr" },
	};

	for (size_t i = 0; i < COUNT_OF(links); i++) {
		if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
			power_fail(links[i][1]);
	}
}

void root_enter(void)
{
	bool readonly = is_readonly();

	if (readonly)
		mount_image(ROOT);
	else
		mount_overlay();
	root_mount_kernel(ROOT);
	switch_root();
	link_descriptors();
	mount_at("/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "mode=0620,ptmxmode=0666,gid=5");
	mount_at("/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	mount_at("/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, "");
	if (readonly) {
		mount_at("/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
		mount_at("/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
		mount_at("/data", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
	} else {
		make_directory("/tmp");
		make_directory("/run");
	}
}
