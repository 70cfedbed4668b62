/* A VMM that is not any more what it was started as. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LOAD_WORD = 0x20,           /* BPF_LD | BPF_W | BPF_ABS, linux/bpf_common.h */
    JUMP_EQUAL = 0x15,          /* BPF_JMP | BPF_JEQ | BPF_K */
    RETURN = 0x06,              /* BPF_RET | BPF_K */
    ALLOW = 0x7fff0000,         /* SECCOMP_RET_ALLOW, linux/seccomp.h */
    REFUSE = 0x00050000 | EPERM, /* SECCOMP_RET_ERRNO */
    FILTER = 2,                 /* SECCOMP_MODE_FILTER */
    NUMBER_AT = 0,              /* struct seccomp_data: nr */
};

struct instruction {
    unsigned short code;
    unsigned char yes, no;
    unsigned value;
};

struct program {
    unsigned short length;
    const struct instruction *instructions;
};

static void *sleeps(void *nothing)
{
    for (;;)
        poll(NULL, 0, -1); /* pause(2) is refused, and would spin */
    return nothing;
}

int one_thread_more(void)
{
    pthread_t thread;
    errno = pthread_create(&thread, NULL, sleeps, NULL);
    return errno ? -1 : 0;
}

int filter_this_thread(void)
{
    /* What it takes to answer and to sleep. */
    static const struct instruction instructions[] = {
        { LOAD_WORD, 0, 0, NUMBER_AT },
        { JUMP_EQUAL, 4, 0, SYS_recvmsg },
        { JUMP_EQUAL, 3, 0, SYS_read },
        { JUMP_EQUAL, 2, 0, SYS_write },
        { JUMP_EQUAL, 1, 0, SYS_rt_sigreturn },
        { RETURN, 0, 0, REFUSE },
        { RETURN, 0, 0, ALLOW },
    };
    const struct program program = { sizeof instructions / sizeof *instructions, instructions };
    return prctl(PR_SET_SECCOMP, FILTER, &program, 0, 0);
}

int take_terminal(int fd)
{
    int result = ioctl(fd, TIOCSCTTY, 0);
    close(fd);
    return result;
}

int map_only(int fd)
{
    void *there = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    return there == MAP_FAILED ? -1 : 0;
}

void become_other(char **argv)
{
    static char bytes[4096];
    char *const nothing[] = { NULL };
    char path[64];
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int copy = memfd_create("vmm", MFD_CLOEXEC);
    for (ssize_t size; (size = read(from, bytes, sizeof bytes)) > 0;)
        if (write(copy, bytes, (size_t)size) != size)
            return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", copy);
    execve(path, argv, nothing);
}
