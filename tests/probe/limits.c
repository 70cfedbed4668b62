/* More than it may have, and the other doors into the kernel. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    STACK = 16384,
    STEP = 1 << 24,
    PAGE = 4096,
    DOOR_MILLISECONDS = 2000,
    X32 = 0x40000000, /* __X32_SYSCALL_BIT, asm/unistd.h */
    I386_GETPID = 20,
};

/* Both limits to one more than they may be; nothing changes when that is refused. */
static long raised(int resource, rlim_t limit)
{
    struct rlimit wanted = { limit + 1, limit + 1 };
    return setrlimit(resource, &wanted);
}

static long raise_core(const struct targets *on) { (void)on; return raised(RLIMIT_CORE, 0); }
static long raise_nofile(const struct targets *on) { (void)on; return raised(RLIMIT_NOFILE, 1024); }
static long raise_memlock(const struct targets *on) { (void)on; return raised(RLIMIT_MEMLOCK, 65536); }
static long raise_nproc(const struct targets *on) { return raised(RLIMIT_NPROC, (rlim_t)on->threads); }
static long raise_fsize(const struct targets *on) { return raised(RLIMIT_FSIZE, (rlim_t)on->file_size); }

static long write_far(const struct targets *on)
{
    return pwrite(on->disk, "x", 1, on->file_size) == 1 ? 0 : -1;
}

static long allocate_far(const struct targets *on)
{
    return fallocate(on->disk, 0, 0, on->file_size + 1);
}

static long stretch(const struct targets *on) { return ftruncate(on->disk, on->file_size + 1); }

static long lower_oom(const struct targets *on)
{
    (void)on;
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -1;
    long result = write(fd, "500", 3);
    if (result == 3)
        result = write(fd, "499", 3);
    int error = errno;
    if (result == 3 && write(fd, "500", 3) != 3)
        abort();
    close(fd);
    errno = error;
    return result == 3 ? 0 : -1;
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *wait_at_gate(void *nothing)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return nothing;
}

/* The value is how many there were at once. */
static long many_threads(const struct targets *on)
{
    long count = 0;
    pthread_t *all = calloc((size_t)on->threads, sizeof *all);
    pthread_attr_t small;
    if (!all)
        return -1;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, STACK);
    pthread_mutex_lock(&gate);
    int error = 0;
    while (count < on->threads && !error) {
        error = pthread_create(&all[count], &small, wait_at_gate, NULL);
        if (!error)
            count++;
    }
    pthread_mutex_unlock(&gate);
    for (long i = 0; i < count; i++)
        pthread_join(all[i], NULL);
    free(all);
    errno = error;
    return error ? -count - 1 : count;
}

static long much_memory(const struct targets *on)
{
    for (long have = 0; have < on->memory; have += STEP) {
        char *step = mmap(NULL, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (step == MAP_FAILED)
            return -1;
        for (size_t at = 0; at < STEP; at += PAGE)
            step[at] = 1;
    }
    return 0;
}

/* A filter of the native calls lets the kernel end whoever comes by another door: it is a thread
 * that comes, so that we can tell. */
struct door {
    void (*enter)(void);
    atomic_int tid;
    atomic_int back;
};

static void *go(void *argument)
{
    struct door *door = argument;
    atomic_store(&door->tid, (int)syscall(SYS_gettid));
    door->enter();
    atomic_store(&door->back, 1);
    return NULL;
}

static long through(void (*enter)(void))
{
    static struct door door;
    pthread_t thread;
    const struct timespec millisecond = { 0, 1000000 };
    memset(&door, 0, sizeof door);
    door.enter = enter;
    int error = pthread_create(&thread, NULL, go, &door);
    if (error) {
        errno = error;
        return -1;
    }
    for (int i = 0; i < DOOR_MILLISECONDS && !atomic_load(&door.back); i++) {
        int tid = atomic_load(&door.tid);
        if (tid && syscall(SYS_tgkill, getpid(), tid, 0) < 0 && errno == ESRCH)
            break;
        nanosleep(&millisecond, NULL);
    }
    errno = 0;
    return atomic_load(&door.back) ? 0 : -1;
}

#ifdef __x86_64__
static void x32(void) { syscall(X32 | SYS_getpid); }

static void i386(void)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(I386_GETPID) : "memory");
}

static long enter_x32(const struct targets *on) { (void)on; return through(x32); }
static long enter_i386(const struct targets *on) { (void)on; return through(i386); }
#endif

const struct attempt limit_attempts[] = {
    { "limit.core", "allow itself core files", 0, raise_core },
    { "limit.nofile", "allow itself more open files", 0, raise_nofile },
    { "limit.memlock", "allow itself more locked memory", 0, raise_memlock },
    { "limit.nproc", "allow itself more processes", 0, raise_nproc },
    { "limit.fsize", "allow itself larger files", 0, raise_fsize },
    { "limit.write", "write beyond the largest size of a file", 0, write_far },
    { "limit.allocate", "take more room on disk than a file may", 0, allocate_far },
    { "limit.stretch", "make a file larger than a file may be", 0, stretch },
    { "limit.oom", "be spared when memory runs out", 0, lower_oom },
    { "limit.threads", "have more threads than it may", 0, many_threads },
    { 0 },
};

/* What may be its end. */
const struct attempt last_attempts[] = {
#ifdef __x86_64__
    { "door.x32", "call the kernel by x32 numbers", 0, enter_x32 },
    { "door.i386", "call the kernel by int 0x80", 0, enter_i386 },
#endif
    { "limit.memory", "have more memory than it may", 0, much_memory },
    { 0 },
};
