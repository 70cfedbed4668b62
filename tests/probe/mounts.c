/* Another view of files: mounts, roots, devices. Unconfined, in a mount namespace of its own. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    TREE_CLONE = 1,        /* OPEN_TREE_CLONE, linux/mount.h */
    CONFIG_CREATE = 6,     /* FSCONFIG_CMD_CREATE, linux/mount.h */
    MOVE_F_EMPTY_PATH = 4, /* MOVE_MOUNT_F_EMPTY_PATH, linux/mount.h */
    KVM_MAJOR = 10,
    KVM_MINOR = 232,
};

static long mount_tmpfs(const struct targets *on) { return mount("t", on->folder, "tmpfs", 0, ""); }

static long mount_proc(const struct targets *on) { return mount("p", on->folder, "proc", 0, ""); }

static long mount_bind(const struct targets *on)
{
    return mount("/proc", on->folder, NULL, MS_BIND, NULL);
}

static long mount_remount(const struct targets *on)
{
    (void)on;
    return mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL);
}

static long mount_shared(const struct targets *on)
{
    (void)on;
    return mount(NULL, "/", NULL, MS_SHARED, NULL);
}

static long unmount(const struct targets *on)
{
    (void)on;
    return umount2("/proc", MNT_DETACH);
}

static long pivot(const struct targets *on)
{
    /* The new root must be a mount; where this is not allowed, neither is what follows. */
    mount("t", on->folder, "tmpfs", 0, "");
    if (chdir(on->folder) < 0)
        return -1;
    return syscall(SYS_pivot_root, ".", ".");
}

static long clone_tree(const struct targets *on)
{
    (void)on;
    return syscall(SYS_open_tree, AT_FDCWD, "/", TREE_CLONE);
}

static long move_tree(const struct targets *on)
{
    long tree = syscall(SYS_open_tree, AT_FDCWD, "/proc", TREE_CLONE);
    /* Without a tree: past the filter it would be EBADF, which is no success either. */
    return syscall(SYS_move_mount, tree, "", AT_FDCWD, on->folder, MOVE_F_EMPTY_PATH);
}

static long open_filesystem(const struct targets *on)
{
    (void)on;
    return syscall(SYS_fsopen, "tmpfs", 0);
}

static long new_mount(const struct targets *on)
{
    (void)on;
    long context = syscall(SYS_fsopen, "tmpfs", 0);
    syscall(SYS_fsconfig, context, CONFIG_CREATE, NULL, NULL, 0);
    return syscall(SYS_fsmount, context, 0, 0);
}

static long pick_filesystem(const struct targets *on)
{
    (void)on;
    return syscall(SYS_fspick, AT_FDCWD, "/", 0);
}

static long set_attributes(const struct targets *on)
{
    (void)on;
    /* struct mount_attr, linux/mount.h: set, clear, propagation, user namespace */
    unsigned long long attributes[4] = { 0, 1, 0, 0 };
    return syscall(442, AT_FDCWD, "/", 0, attributes, sizeof attributes); /* mount_setattr */
}

static long change_root(const struct targets *on) { return syscall(SYS_chroot, on->folder); }

static long make_device(const struct targets *on)
{
    char path[WORD + 8];
    snprintf(path, sizeof path, "%s/node", on->devices);
    long result = mknod(path, S_IFCHR | 0600, makedev(KVM_MAJOR, KVM_MINOR));
    int error = errno;
    unlink(path);
    errno = error;
    return result;
}

static long open_memory(const struct targets *on) { (void)on; return opens("/dev/mem", O_RDONLY); }
static long open_kvm(const struct targets *on) { (void)on; return opens("/dev/kvm", O_RDWR); }
static long open_log(const struct targets *on) { (void)on; return opens("/dev/kmsg", O_RDONLY); }
static long open_fuse(const struct targets *on) { (void)on; return opens("/dev/fuse", O_RDWR); }
static long open_tun(const struct targets *on) { (void)on; return opens("/dev/net/tun", O_RDWR); }
static long open_block(const struct targets *on) { return opens(on->block, O_RDONLY); }

const struct attempt mount_attempts[] = {
    { "mount.tmpfs", "mount a tmpfs", 0, mount_tmpfs },
    { "mount.proc", "mount another /proc", 0, mount_proc },
    { "mount.bind", "show a directory in another place", 0, mount_bind },
    { "mount.remount", "make its root writable", 0, mount_remount },
    { "mount.shared", "share its mounts with others", 0, mount_shared },
    { "mount.umount", "unmount /proc", 0, unmount },
    { "mount.pivot_root", "put another root in the place of its own", 0, pivot },
    { "mount.open_tree", "copy its mounts", 0, clone_tree },
    { "mount.move_mount", "put a copied mount somewhere", 0, move_tree },
    { "mount.fsopen", "make a file system", 0, open_filesystem },
    { "mount.fsmount", "make a mount of a file system", 0, new_mount },
    { "mount.fspick", "take hold of a mounted file system", 0, pick_filesystem },
    { "mount.setattr", "change the flags of its root", 0, set_attributes },
    { "mount.chroot", "change its root directory", 0, change_root },
    { "device.mknod", "make a device node", 0, make_device },
    { "device.mem", "open the host's memory", 0, open_memory },
    { "device.kvm", "open /dev/kvm, which was not given to it", 0, open_kvm },
    { "device.kmsg", "open the kernel's log", 0, open_log },
    { "device.fuse", "open /dev/fuse", 0, open_fuse },
    { "device.tun", "open /dev/net/tun", 0, open_tun },
    { "device.block", "open a disk of the host", 0, open_block },
    { 0 },
};
