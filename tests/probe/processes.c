/* Other processes: to signal, to read, to take over; and to become somebody else. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    OTHER_ID = 12345,
    CAPABILITY_VERSION_3 = 0x20080522, /* linux/capability.h */
    CAP_SETUID_BIT = 7,
};

/* SIGCONT does nothing to a process that sleeps. */
static long signal_kill(const struct targets *on) { return syscall(SYS_kill, on->victim, SIGCONT); }

static long signal_thread(const struct targets *on)
{
    return syscall(SYS_tgkill, on->victim, on->victim, SIGCONT);
}

static long signal_queue(const struct targets *on)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = SIGCONT;
    info.si_code = SI_QUEUE;
    return syscall(SYS_rt_sigqueueinfo, on->victim, SIGCONT, &info);
}

static long signal_pidfd(const struct targets *on)
{
    long fd = syscall(SYS_pidfd_open, on->victim, 0);
    return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGCONT, NULL, 0);
}

/* The kernel would send it SIGIO for us: fcntl is a call that a VMM needs. */
static long signal_owner(const struct targets *on)
{
    int ends[2];
    if (pipe(ends) < 0)
        return -1;
    long result = fcntl(ends[0], F_SETOWN, (int)on->victim);
    int error = errno;
    close(ends[0]);
    close(ends[1]);
    errno = error;
    return result;
}

static long trace(const struct targets *on) { return ptrace(PTRACE_SEIZE, on->victim, NULL, NULL); }

static long read_memory(const struct targets *on)
{
    char byte;
    struct iovec here = { &byte, 1 };
    struct iovec there = { (void *)16, 1 }; /* not mapped: EFAULT is for whoever may look */
    return process_vm_readv((pid_t)on->victim, &here, 1, &there, 1, 0);
}

static long write_memory(const struct targets *on)
{
    char byte = 0;
    struct iovec here = { &byte, 1 };
    struct iovec there = { (void *)16, 1 };
    return process_vm_writev((pid_t)on->victim, &here, 1, &there, 1, 0);
}

static long take_descriptor(const struct targets *on)
{
    long fd = syscall(SYS_pidfd_open, on->victim, 0);
    return fd < 0 ? -1 : syscall(438, fd, 0, 0); /* pidfd_getfd */
}

static long compare(const struct targets *on)
{
    return syscall(SYS_kcmp, on->victim, getpid(), 0, 0, 0);
}

static long open_of_victim(const struct targets *on, const char *file, int flags)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", on->victim, file);
    return opens(path, flags);
}

static long proc_mem(const struct targets *on) { return open_of_victim(on, "mem", O_RDWR); }
static long proc_root(const struct targets *on) { return open_of_victim(on, "root/", O_RDONLY); }
static long proc_environ(const struct targets *on) { return open_of_victim(on, "environ", O_RDONLY); }
static long proc_fd(const struct targets *on) { return open_of_victim(on, "fd/0", O_RDONLY); }

static long become_uid(const struct targets *on) { (void)on; return syscall(SYS_setuid, OTHER_ID); }
static long become_gid(const struct targets *on) { (void)on; return syscall(SYS_setgid, OTHER_ID); }

static long become_resuid(const struct targets *on)
{
    (void)on;
    return syscall(SYS_setresuid, OTHER_ID, OTHER_ID, OTHER_ID);
}

static long join_group(const struct targets *on)
{
    gid_t group = OTHER_ID;
    (void)on;
    return syscall(SYS_setgroups, 1, &group);
}

static long take_capability(const struct targets *on)
{
    struct { unsigned version; int pid; } header = { CAPABILITY_VERSION_3, 0 };
    struct { unsigned effective, permitted, inheritable; } sets[2];
    (void)on;
    memset(sets, 0, sizeof sets);
    sets[0].effective = sets[0].permitted = 1U << CAP_SETUID_BIT;
    return syscall(SYS_capset, &header, sets);
}

/* A program of its own, whose parent would not be the runtime: nobody counts it as the VMM. */
static long make_process(const struct targets *on)
{
    (void)on;
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}

static long vfork_process(const struct targets *on)
{
    (void)on;
    long child = syscall(SYS_clone, CLONE_FS | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child;
}

const struct attempt process_attempts[] = {
    { "signal.kill", "signal a process of the host", 0, signal_kill },
    { "signal.thread", "signal a thread of the host", 0, signal_thread },
    { "signal.queue", "queue a signal for a process of the host", 0, signal_queue },
    { "signal.pidfd", "signal a process of the host by descriptor", 0, signal_pidfd },
    { "signal.owner", "have the kernel signal a process of the host", 0, signal_owner },
    { "process.ptrace", "trace a process of the host", 0, trace },
    { "process.read", "read the memory of a process of the host", EFAULT, read_memory },
    { "process.write", "write the memory of a process of the host", EFAULT, write_memory },
    { "process.getfd", "take a descriptor of a process of the host", 0, take_descriptor },
    { "process.kcmp", "compare itself with a process of the host", 0, compare },
    { "process.mem", "open the memory of a process of the host", 0, proc_mem },
    { "process.root", "go through the root of a process of the host", 0, proc_root },
    { "process.environ", "read the environment of a process of the host", 0, proc_environ },
    { "process.fd", "open a file through a process of the host", 0, proc_fd },
    { "process.fork", "make a process", 0, make_process },
    { "process.clone", "make a process that shares its working directory", 0, vfork_process },
    { "identity.setuid", "become another user", 0, become_uid },
    { "identity.setresuid", "become another user in all four ways", 0, become_resuid },
    { "identity.setgid", "become another group", 0, become_gid },
    { "identity.setgroups", "join a group", 0, join_group },
    { "identity.capset", "take a capability", 0, take_capability },
    { 0 },
};
