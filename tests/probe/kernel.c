/* Parts of the kernel that a VMM has no use for. Whatever would harm is asked so that it cannot. */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

enum {
    KEYCTL_GET_ID = 0,         /* KEYCTL_GET_KEYRING_ID, linux/keyctl.h */
    PROCESS_KEYRING = -2,      /* KEY_SPEC_PROCESS_KEYRING */
    BPF_CREATE_MAP = 0,        /* BPF_MAP_CREATE, linux/bpf.h */
    BPF_ARRAY = 2,             /* BPF_MAP_TYPE_ARRAY */
    PERF_SOFTWARE = 1,         /* PERF_TYPE_SOFTWARE, linux/perf_event.h */
    PERF_BYTES = 112,          /* PERF_ATTR_SIZE_VER5 */
    SYSLOG_UNREAD = 9,         /* SYSLOG_ACTION_SIZE_UNREAD, linux/syslog.h */
    NO_RANDOM = 0x0040000,     /* ADDR_NO_RANDOMIZE, linux/personality.h */
    SUBREAPER = 36,            /* PR_SET_CHILD_SUBREAPER, linux/prctl.h */
    AMBIENT = 47,              /* PR_CAP_AMBIENT */
    AMBIENT_RAISE = 2,
    NET_BIND_SERVICE = 10,     /* CAP_NET_BIND_SERVICE */
    SET_OFFSET = 0x0100,       /* ADJ_SETOFFSET, linux/timex.h */
    RESTART = 0x01234567,      /* LINUX_REBOOT_CMD_RESTART, linux/reboot.h */
    REBOOT_1 = (int)0xfee1dead,
    REBOOT_2 = 672274793,
};

static long get_keyring(const struct targets *on)
{
    (void)on;
    return syscall(SYS_keyctl, KEYCTL_GET_ID, PROCESS_KEYRING, 1) < 0 ? -1 : 0;
}

static long add_a_key(const struct targets *on)
{
    (void)on;
    return syscall(SYS_add_key, "user", "box-probe", "x", 1, PROCESS_KEYRING) < 0 ? -1 : 0;
}

static long request_a_key(const struct targets *on)
{
    (void)on;
    return syscall(SYS_request_key, "user", "box-probe-none", NULL, 0);
}

static long make_map(const struct targets *on)
{
    /* union bpf_attr: map_type, key_size, value_size, max_entries */
    unsigned attributes[32] = { BPF_ARRAY, 4, 4, 1 };
    (void)on;
    return syscall(SYS_bpf, BPF_CREATE_MAP, attributes, sizeof attributes);
}

static long open_counter(const struct targets *on)
{
    unsigned attributes[PERF_BYTES / 4] = { PERF_SOFTWARE, PERF_BYTES };
    (void)on;
    return syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0);
}

static long open_faults(const struct targets *on) { (void)on; return syscall(SYS_userfaultfd, O_CLOEXEC); }

static long open_ring(const struct targets *on)
{
    char parameters[120] = { 0 }; /* struct io_uring_params, linux/io_uring.h */
    (void)on;
    return syscall(SYS_io_uring_setup, 1, parameters);
}

static long watch_files(const struct targets *on) { (void)on; return syscall(SYS_fanotify_init, 0, 0); }
static long read_log(const struct targets *on) { (void)on; return syscall(SYS_syslog, SYSLOG_UNREAD, NULL, 0); }
static long load_module(const struct targets *on) { (void)on; return syscall(SYS_init_module, "no module", 9, ""); }
static long load_kernel(const struct targets *on) { (void)on; return syscall(SYS_kexec_load, 0, 0, NULL, 0); }
static long swap(const struct targets *on) { return syscall(SYS_swapon, on->part, 0); }
static long name_host(const struct targets *on) { (void)on; return syscall(SYS_sethostname, "probe", 5); }
static long name_domain(const struct targets *on) { (void)on; return syscall(SYS_setdomainname, "probe", 5); }
static long persona(const struct targets *on) { (void)on; return syscall(SYS_personality, NO_RANDOM); }
static long reap(const struct targets *on) { (void)on; return prctl(SUBREAPER, 1, 0, 0, 0); }

/* For reading alone: of what may be written, the kernel only says that it is busy. */
static long load_file(const struct targets *on)
{
    int fd = open(on->part, O_RDONLY | O_CLOEXEC);
    long result = syscall(SYS_finit_module, fd, "", 0);
    int error = errno;
    close(fd);
    errno = error;
    return result;
}

static long raise_ambient(const struct targets *on)
{
    struct { unsigned version; int pid; } header = { 0x20080522, 0 };
    struct { unsigned effective, permitted, inheritable; } sets[2];
    (void)on;
    memset(sets, 0, sizeof sets);
    syscall(SYS_capget, &header, sets);
    sets[0].inheritable |= 1U << NET_BIND_SERVICE;
    syscall(SYS_capset, &header, sets);
    return prctl(AMBIENT, AMBIENT_RAISE, NET_BIND_SERVICE, 0, 0);
}

/* By nothing: the clock stays as it is. */
static long set_clock(const struct targets *on)
{
    struct timex change;
    (void)on;
    memset(&change, 0, sizeof change);
    change.modes = SET_OFFSET;
    return syscall(SYS_adjtimex, &change);
}

static long hurry(const struct targets *on) { (void)on; return setpriority(PRIO_PROCESS, 0, -5); }

static long real_time(const struct targets *on)
{
    struct { int priority; } parameters = { 1 };
    (void)on;
    return syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameters);
}

#ifdef __x86_64__
static long use_ports(const struct targets *on) { (void)on; return syscall(SYS_ioperm, 0x80, 1, 1); }

static long set_segment(const struct targets *on)
{
    /* struct user_desc, asm/ldt.h: entry 0, present, usable, 32 bit */
    unsigned segment[4] = { 0, 0, 0xfffff, 0x51 };
    (void)on;
    return syscall(SYS_modify_ldt, 1, segment, sizeof segment);
}
#endif

/* Unconfined as the first process of a pid namespace of its own, which ends with this. */
static long restart(const struct targets *on)
{
    (void)on;
    return syscall(SYS_reboot, REBOOT_1, REBOOT_2, RESTART, NULL);
}

const struct attempt kernel_attempts[] = {
    { "key.keyring", "have a keyring", 0, get_keyring },
    { "key.add", "keep a key in the kernel", 0, add_a_key },
    /* Whoever may ask is told that there is no such key. */
    { "key.request", "ask for a key", ENOKEY, request_a_key },
    { "kernel.bpf", "make a BPF map", 0, make_map },
    { "kernel.perf", "count events of the kernel's", 0, open_counter },
    { "kernel.userfaultfd", "handle page faults itself", 0, open_faults },
    { "kernel.io_uring", "have calls made by io_uring", 0, open_ring },
    { "kernel.fanotify", "watch files of everybody", 0, watch_files },
    { "kernel.syslog", "read the kernel's log", 0, read_log },
    { "kernel.module", "load a module from memory", ENOEXEC, load_module },
    { "kernel.module_file", "load a module from a file", ENOEXEC, load_file },
    { "kernel.kexec", "load another kernel", 0, load_kernel },
    /* Whoever may is told that this is no swap file. */
    { "kernel.swapon", "give the host swap space", EINVAL, swap },
    { "kernel.sethostname", "rename the host", 0, name_host },
    { "kernel.setdomainname", "rename the host's domain", 0, name_domain },
    { "kernel.clock", "set the clock", 0, set_clock },
    { "kernel.priority", "run before others", 0, hurry },
    { "kernel.realtime", "run before everybody", 0, real_time },
    { "kernel.personality", "run without random addresses", 0, persona },
    { "kernel.subreaper", "inherit processes", 0, reap },
    { "kernel.ambient", "hand on a capability", 0, raise_ambient },
#ifdef __x86_64__
    { "kernel.ioperm", "use I/O ports", 0, use_ports },
    { "kernel.ldt", "make a segment", 0, set_segment },
#endif
    { "kernel.reboot", "restart the machine", 0, restart },
    { 0 },
};
