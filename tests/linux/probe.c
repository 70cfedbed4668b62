/* Stands in for a VMM that was broken into: tries what it must not be able to do.
 *
 * "calls": writes one line "name errno" (0: it worked) for each to fd 3, then sleeps.
 * "x32", "i386": waits for a byte on fd 4, enters the kernel by that door, writes "alive" to fd 3.
 * "fds": writes the numbers of its open descriptors to fd 3, then sleeps.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void report(const char *name, long result)
{
    dprintf(3, "%s %d\n", name, result < 0 ? errno : 0);
}

static void calls(void)
{
    static const struct {
        const char *name;
        long number;
        long first;
        long second;
    } tries[] = {
        { "unshare-user", SYS_unshare, CLONE_NEWUSER, 0 },
        { "unshare-mount", SYS_unshare, CLONE_NEWNS, 0 },
        { "clone-user", SYS_clone, CLONE_NEWUSER | SIGCHLD, 0 },
        { "fork", SYS_clone, SIGCHLD, 0 },
        { "clone3", SYS_clone3, 0, 0 },
        { "setns", SYS_setns, 0, 0 },
        { "mount", SYS_mount, 0, 0 },
        { "ptrace", SYS_ptrace, 0, 0 },
        { "keyctl", SYS_keyctl, 0, -3 },
        { "bpf", SYS_bpf, 0, 0 },
        { "userfaultfd", SYS_userfaultfd, 1, 0 },
        { "io_uring_setup", SYS_io_uring_setup, 1, 0 },
        { "socket", SYS_socket, 1, 1 },
        { "socket-inet", SYS_socket, 2, 02000001 },
        { "socket-netlink", SYS_socket, 16, 02000003 },
        { "socket-unix-stream", SYS_socket, 1, 02000001 },
        { "connect", SYS_connect, -1, 0 },
        { "setuid", SYS_setuid, 0, 0 },
        { "personality", SYS_personality, 0, 0 },
        { "prctl-subreaper", SYS_prctl, 36, 1 },
        { "kill", SYS_kill, -1, 0 },
        { "getpid", SYS_getpid, 0, 0 },
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        errno = 0;
        long result = syscall(tries[i].number, tries[i].first, tries[i].second, 0, 0, 0);
        if (result == 0 && strcmp(tries[i].name, "fork") == 0)
            continue; /* never in a child of ours: it would report twice */
        report(tries[i].name, result);
    }
}

static void fds(void)
{
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            dprintf(3, "%d ", fd);
    dprintf(3, "\n");
}

int main(int argc, char **argv)
{
    char go;
    /* As a VMM, without what an OCI runtime sets. */
    if (*environ)
        execve("/proc/self/exe", argv, (char *[]){ NULL });
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "calls") == 0)
        calls();
    if (strcmp(what, "fds") == 0)
        fds();
#ifdef __x86_64__
    if (strcmp(what, "x32") == 0 && read(4, &go, 1) == 1) {
        syscall(0x40000000 | SYS_getpid);
        dprintf(3, "alive\n");
    }
    if (strcmp(what, "i386") == 0 && read(4, &go, 1) == 1) {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
        dprintf(3, "alive\n");
    }
#else
    (void)go;
#endif
    if (*what)
        close(3); /* the end of the report */
    for (;;)
        poll(NULL, 0, -1); /* pause() is refused, and would spin */
}
