/* Namespaces of one's own, where one would be root again, and those of others. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NEWTIME = 0x00000080 }; /* CLONE_NEWTIME, linux/sched.h */

static long cloned(long flags)
{
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
    return child;
}

static long cloned3(unsigned long long flags)
{
    /* struct clone_args, linux/sched.h: its first version, 64 bytes */
    unsigned long long arguments[8] = { flags, [4] = SIGCHLD };
    long child = syscall(SYS_clone3, arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    if (child > 0)
        waitpid((pid_t)child, NULL, 0);
    return child;
}

static long entered(const char *kind)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/ns/%s", kind);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long result = syscall(SYS_setns, fd, 0);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

#define KIND(name, flag)                                                                           \
    static long unshare_##name(const struct targets *on)                                           \
    {                                                                                              \
        (void)on;                                                                                  \
        return syscall(SYS_unshare, flag);                                                         \
    }                                                                                              \
    static long setns_##name(const struct targets *on)                                             \
    {                                                                                              \
        (void)on;                                                                                  \
        return entered(#name);                                                                     \
    }                                                                                              \
    static long clone3_##name(const struct targets *on)                                            \
    {                                                                                              \
        (void)on;                                                                                  \
        return cloned3(flag);                                                                      \
    }
#define CLONED(name, flag)                                                                         \
    static long clone_##name(const struct targets *on)                                             \
    {                                                                                              \
        (void)on;                                                                                  \
        return cloned(flag);                                                                       \
    }

KIND(user, CLONE_NEWUSER)
KIND(mnt, CLONE_NEWNS)
KIND(pid, CLONE_NEWPID)
KIND(net, CLONE_NEWNET)
KIND(ipc, CLONE_NEWIPC)
KIND(uts, CLONE_NEWUTS)
KIND(cgroup, CLONE_NEWCGROUP)
KIND(time, NEWTIME)
CLONED(user, CLONE_NEWUSER)
CLONED(mnt, CLONE_NEWNS)
CLONED(pid, CLONE_NEWPID)
CLONED(net, CLONE_NEWNET)
CLONED(ipc, CLONE_NEWIPC)
CLONED(uts, CLONE_NEWUTS)
CLONED(cgroup, CLONE_NEWCGROUP)

static long setns_victim(const struct targets *on)
{
    long fd = syscall(SYS_pidfd_open, on->victim, 0);
    return fd < 0 ? -1 : syscall(SYS_setns, fd, CLONE_NEWUTS);
}

#define UNSHARE(name, what) { "unshare." #name, "unshare: " what " of its own", 0, unshare_##name }
#define CLONE(name, what) { "clone." #name, "clone: a child with " what " of its own", 0, clone_##name }
#define CLONE3(name, what) \
    { "clone3." #name, "clone3: a child with " what " of its own", 0, clone3_##name }
#define SETNS(name, past) { "setns." #name, "setns: enter a " #name " namespace", past, setns_##name }

const struct attempt namespace_attempts[] = {
    UNSHARE(user, "a user namespace"), UNSHARE(mnt, "mounts"), UNSHARE(pid, "process IDs"),
    UNSHARE(net, "a network"), UNSHARE(ipc, "IPC"), UNSHARE(uts, "a host name"),
    UNSHARE(cgroup, "a cgroup root"), UNSHARE(time, "clocks"),
    CLONE(user, "a user namespace"), CLONE(mnt, "mounts"), CLONE(pid, "process IDs"),
    CLONE(net, "a network"), CLONE(ipc, "IPC"), CLONE(uts, "a host name"),
    CLONE(cgroup, "a cgroup root"),
    CLONE3(user, "a user namespace"), CLONE3(mnt, "mounts"), CLONE3(pid, "process IDs"),
    CLONE3(net, "a network"), CLONE3(ipc, "IPC"), CLONE3(uts, "a host name"),
    CLONE3(cgroup, "a cgroup root"), CLONE3(time, "clocks"),
    /* One's own user namespace cannot be entered again: the kernel says EINVAL to anybody. */
    SETNS(user, EINVAL), SETNS(mnt, 0), SETNS(pid, 0), SETNS(net, 0), SETNS(ipc, 0), SETNS(uts, 0),
    SETNS(cgroup, 0), SETNS(time, 0),
    { "setns.victim", "setns: enter a namespace of a process of the host", 0, setns_victim },
    { 0 },
};
