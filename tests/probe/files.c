/* Files of the host, and the VMM's own parts. Nothing is written that a success would harm. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HANDLE_BYTES = 128 }; /* MAX_HANDLE_SZ, linux/exportfs.h */

static long below(const char *folder, const char *name, char *path, size_t size)
{
    return snprintf(path, size, "%s/%s", folder, name);
}

static long host_path(const struct targets *on) { return opens(on->secret, O_RDONLY); }
static long host_passwd(const struct targets *on) { (void)on; return opens("/etc/passwd", O_RDONLY); }
static long host_shadow(const struct targets *on) { (void)on; return opens("/etc/shadow", O_RDONLY); }
static long host_sys(const struct targets *on) { (void)on; return opens("/sys/kernel", O_RDONLY); }
static long host_cgroup(const struct targets *on) { (void)on; return opens("/sys/fs/cgroup", O_RDONLY); }

static long through(const char *start, const struct targets *on)
{
    char path[2 * WORD];
    snprintf(path, sizeof path, "%s%s", start, on->secret);
    return opens(path, O_RDONLY);
}

static long host_dots(const struct targets *on) { return through("/../../../../../../..", on); }
static long host_cwd(const struct targets *on) { return through("/proc/self/cwd/../../..", on); }
static long host_init(const struct targets *on) { return through("/proc/1/root", on); }
static long host_self(const struct targets *on) { return through("/proc/self/root/..", on); }
static long host_task(const struct targets *on) { return through("/proc/thread-self/root", on); }

/* From each descriptor that we hold, upwards: one directory of the host would be enough. */
static long host_descriptors(const struct targets *on)
{
    char path[2 * WORD];
    snprintf(path, sizeof path, "../../../../../../..%s", on->secret);
    int error = EBADF;
    for (int fd = 0; fd < 64; fd++) {
        int found = openat(fd, path, O_RDONLY | O_CLOEXEC);
        if (found >= 0) {
            close(found);
            return 0;
        }
        if (errno != EBADF)
            error = errno;
    }
    /* Unconfined there is such a descriptor: the one that is opened now. */
    int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int found = root < 0 ? -1 : openat(root, path, O_RDONLY | O_CLOEXEC);
    if (found >= 0)
        return 0;
    errno = error;
    return -1;
}

static long host_handle(const struct targets *on)
{
    struct { unsigned size; int type; char bytes[HANDLE_BYTES]; } handle = { .size = HANDLE_BYTES };
    int mount;
    if (syscall(SYS_name_to_handle_at, AT_FDCWD, on->part, &handle, &mount, 0) < 0)
        return -1;
    int root = open(on->part, O_RDONLY | O_CLOEXEC);
    long result = syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY | O_CLOEXEC);
    int error = errno;
    close(root);
    errno = error;
    return result;
}

static long sys_core(const struct targets *on)
{
    (void)on;
    return opens("/proc/sys/kernel/core_pattern", O_WRONLY);
}

static long sys_sysrq(const struct targets *on) { (void)on; return opens("/proc/sysrq-trigger", O_WRONLY); }
static long sys_keys(const struct targets *on)
{
    /* Masked it is /dev/null, which opens and holds nothing. */
    char byte;
    (void)on;
    int fd = open("/proc/keys", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t size = read(fd, &byte, 1);
    close(fd);
    errno = ENODATA;
    return size == 1 ? 0 : -1;
}

static long sys_kcore(const struct targets *on)
{
    char byte;
    (void)on;
    int fd = open("/proc/kcore", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t size = read(fd, &byte, 1);
    close(fd);
    errno = ENODATA;
    return size == 1 ? 0 : -1;
}

static long own_program(const struct targets *on) { return opens(on->own, O_WRONLY); }
/* Not opened for writing: a program that runs cannot be, whoever asks. */
static long own_exe(const struct targets *on)
{
    (void)on;
    return syscall(SYS_fchmodat, AT_FDCWD, "/proc/self/exe", 0755);
}
static long own_part(const struct targets *on) { return opens(on->part, O_WRONLY); }
static long own_truncate(const struct targets *on) { return syscall(SYS_truncate, on->part, 0); }
static long own_chmod(const struct targets *on) { return syscall(SYS_fchmodat, AT_FDCWD, on->part, 0644); }
static long own_unlink(const struct targets *on) { return syscall(SYS_unlinkat, AT_FDCWD, on->part, 0); }

static long own_create(const struct targets *on)
{
    char path[WORD + 8];
    below(on->folder, "new", path, sizeof path);
    return opens(path, O_WRONLY | O_CREAT);
}

static long own_device_folder(const struct targets *on)
{
    char path[WORD + 8];
    below(on->devices, "new", path, sizeof path);
    return opens(path, O_WRONLY | O_CREAT);
}

static long own_temporary(const struct targets *on) { return opens(on->folder, O_TMPFILE | O_RDWR); }

static long own_mkdir(const struct targets *on)
{
    char path[WORD + 8];
    below(on->folder, "dir", path, sizeof path);
    return syscall(SYS_mkdirat, AT_FDCWD, path, 0700);
}

static long own_symlink(const struct targets *on)
{
    char path[WORD + 8];
    below(on->folder, "link", path, sizeof path);
    return syscall(SYS_symlinkat, "/", AT_FDCWD, path);
}

static long own_rename(const struct targets *on)
{
    char path[WORD + 8];
    below(on->folder, "moved", path, sizeof path);
    return syscall(SYS_renameat2, AT_FDCWD, on->part, AT_FDCWD, path, 0);
}

/* Writable through /proc, though it is mounted read-only where it lies? */
static long own_link(const struct targets *on)
{
    char path[64];
    int fd = open(on->part, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    long result = opens(path, O_RDWR);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

/* Also writes where its own pages are read-only: no more code than it could map, but unseen. */
static long own_memory(const struct targets *on)
{
    static const char constant = 'a';
    (void)on;
    int fd = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long result = pwrite(fd, "b", 1, (off_t)(size_t)&constant);
    int error = errno;
    close(fd);
    errno = error;
    return result < 0 ? -1 : 0;
}

const struct attempt file_attempts[] = {
    { "host.path", "read a file of the host", 0, host_path },
    { "host.passwd", "read /etc/passwd", 0, host_passwd },
    { "host.shadow", "read /etc/shadow", 0, host_shadow },
    { "host.sys", "look into /sys", 0, host_sys },
    { "host.cgroup", "look into the cgroups", 0, host_cgroup },
    { "host.dots", "read a file of the host, above its root", 0, host_dots },
    { "host.cwd", "read a file of the host, above its working directory", 0, host_cwd },
    { "host.init", "read a file of the host through /proc/1/root", 0, host_init },
    { "host.self", "read a file of the host through /proc/self/root", 0, host_self },
    { "host.task", "read a file of the host through /proc/thread-self/root", 0, host_task },
    { "host.descriptors", "read a file of the host from a descriptor upwards", 0, host_descriptors },
    { "host.handle", "open a file by its handle, around its mounts", 0, host_handle },
    { "sys.core_pattern", "say what the host does with core files", 0, sys_core },
    { "sys.sysrq", "give the host's kernel a command", 0, sys_sysrq },
    { "sys.keys", "read the list of keys", 0, sys_keys },
    { "sys.kcore", "read the kernel's memory", 0, sys_kcore },
    { "own.program", "write its own program", 0, own_program },
    { "own.exe", "change its own program through /proc/self/exe", 0, own_exe },
    { "own.part", "write the guest's kernel", 0, own_part },
    { "own.link", "write the guest's kernel through /proc/self/fd", 0, own_link },
    { "own.truncate", "cut the guest's kernel off", 0, own_truncate },
    { "own.chmod", "change the mode of the guest's kernel", 0, own_chmod },
    { "own.rename", "move the guest's kernel away", 0, own_rename },
    { "own.unlink", "delete the guest's kernel", 0, own_unlink },
    { "own.create", "make a file in its root", 0, own_create },
    { "own.temporary", "make a file without a name in its root", 0, own_temporary },
    { "own.mkdir", "make a directory in its root", 0, own_mkdir },
    { "own.symlink", "make a link in its root", 0, own_symlink },
    { "own.dev", "make a file in its /dev", 0, own_device_folder },
    { "own.memory", "write its own read-only memory", 0, own_memory },
    { 0 },
};
