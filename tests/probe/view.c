/* What we are, as we see it: by system calls where there is one, else by our own files in /proc. */
#include "probe.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum {
    FILE_BYTES = 1 << 16,
    GROUPS = 64,
    DESCRIPTORS = 1024,
    CAPABILITY_VERSION_3 = 0x20080522, /* linux/capability.h */
};

extern char **environ;

static void put_file(const char *path)
{
    static char text[FILE_BYTES];
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        put("null");
        return;
    }
    for (ssize_t got; (got = read(fd, text + size, sizeof text - size)) > 0;)
        size += (size_t)got;
    close(fd);
    put_text(text, size);
}

static void put_words(const char *name, char **words)
{
    put(", \"%s\": [", name);
    for (size_t i = 0; words[i]; i++) {
        put("%s", i ? ", " : "");
        put_text(words[i], strlen(words[i]));
    }
    put("]");
}

static void put_ids(void)
{
    uid_t r, e, s;
    gid_t rg, eg, sg;
    gid_t groups[GROUPS];
    getresuid(&r, &e, &s);
    getresgid(&rg, &eg, &sg);
    put("\"uids\": [%u, %u, %u], \"gids\": [%u, %u, %u], \"groups\": [", r, e, s, rg, eg, sg);
    int count = getgroups(GROUPS, groups);
    for (int i = 0; i < count; i++)
        put("%s%u", i ? ", " : "", groups[i]);
    put("], \"pid\": %d, \"parent\": %d", getpid(), getppid());
}

static void put_capabilities(void)
{
    struct { unsigned version; int pid; } header = { CAPABILITY_VERSION_3, 0 };
    struct { unsigned effective, permitted, inheritable; } sets[2];
    memset(sets, 0, sizeof sets);
    syscall(SYS_capget, &header, sets);
    unsigned long long bounding = 0;
    for (int bit = 0; bit < 64; bit++) {
        int have = prctl(PR_CAPBSET_READ, bit, 0, 0, 0);
        if (have < 0)
            break;
        bounding |= (unsigned long long)have << bit;
    }
    put(", \"capabilities\": {\"effective\": %llu, \"permitted\": %llu, \"inheritable\": %llu",
        (unsigned long long)sets[1].effective << 32 | sets[0].effective,
        (unsigned long long)sets[1].permitted << 32 | sets[0].permitted,
        (unsigned long long)sets[1].inheritable << 32 | sets[0].inheritable);
    put(", \"bounding\": %llu}", bounding);
    put(", \"no_new_privs\": %d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    put(", \"seccomp\": %d", prctl(PR_GET_SECCOMP, 0, 0, 0, 0));
}

static void put_limits(void)
{
    static const struct { const char *name; int number; } all[] = {
        { "RLIMIT_CORE", RLIMIT_CORE },       { "RLIMIT_FSIZE", RLIMIT_FSIZE },
        { "RLIMIT_MEMLOCK", RLIMIT_MEMLOCK }, { "RLIMIT_NOFILE", RLIMIT_NOFILE },
        { "RLIMIT_NPROC", RLIMIT_NPROC },
    };
    put(", \"rlimits\": {");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct rlimit limit;
        getrlimit(all[i].number, &limit);
        put("%s\"%s\": [%lld, %lld]", i ? ", " : "", all[i].name,
            (long long)limit.rlim_cur, (long long)limit.rlim_max);
    }
    put("}");
}

static void put_namespaces(void)
{
    static const char *const kinds[] = { "user", "mnt", "pid", "ipc", "uts", "net", "cgroup", "time" };
    put(", \"namespaces\": {");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[64];
        struct stat facts;
        snprintf(path, sizeof path, "/proc/self/ns/%s", kinds[i]);
        memset(&facts, 0, sizeof facts);
        stat(path, &facts);
        put("%s\"%s\": %llu", i ? ", " : "", kinds[i], (unsigned long long)facts.st_ino);
    }
    put("}");
}

static void put_descriptors(void)
{
    const char *comma = "";
    put(", \"descriptors\": {");
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        char path[64];
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        put("%s\"%d\": ", comma, fd);
        put_file(path);
        comma = ", ";
    }
    put("}");
}

static void put_link(const char *path)
{
    char text[WORD];
    ssize_t size = readlink(path, text, sizeof text);
    put_text(text, size < 0 ? 0 : (size_t)size);
}

static void put_links(void)
{
    const char *comma = "";
    put(", \"root\": ");
    put_link("/proc/self/root");
    put(", \"directory\": ");
    put_link("/proc/self/cwd");
    put(", \"program\": ");
    put_link("/proc/self/exe");
    put(", \"kinds\": {");
    for (int fd = 0; fd < DESCRIPTORS; fd++) {
        char path[64];
        if (fcntl(fd, F_GETFD) < 0)
            continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        put("%s\"%d\": ", comma, fd);
        put_link(path);
        comma = ", ";
    }
    put("}");
}

/* What is hidden of the host, as it looks: null, empty, absent, or shown. */
static const char *mask_of(const char *path)
{
    struct stat facts;
    if (stat(path, &facts) < 0)
        return "absent";
    if (S_ISCHR(facts.st_mode))
        return facts.st_rdev == makedev(1, 3) ? "null" : "shown";
    DIR *folder = S_ISDIR(facts.st_mode) ? opendir(path) : NULL;
    if (!folder)
        return "shown";
    int entries = 0;
    while (readdir(folder))
        entries++;
    closedir(folder);
    return entries == 2 ? "empty" : "shown";
}

static void put_masks(void)
{
    /* The policy's masked paths: the test compares the lists too. */
    static const char *const paths[] = {
        "/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
        "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
    };
    put(", \"masked\": {");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        put("%s\"%s\": \"%s\"", i ? ", " : "", paths[i], mask_of(paths[i]));
    put("}");
}

static void put_processes(void)
{
    const char *comma = "";
    DIR *all = opendir("/proc");
    put(", \"processes\": [");
    for (struct dirent *each; all && (each = readdir(all));)
        if (strspn(each->d_name, "0123456789") == strlen(each->d_name)) {
            put("%s%s", comma, each->d_name);
            comma = ", ";
        }
    if (all)
        closedir(all);
    put("]");
}

void view(int fd, int argc, char **argv)
{
    static const char *const files[] = {
        "status", "uid_map", "gid_map", "mountinfo", "cgroup", "oom_score_adj", "net/dev", "stat",
        "attr/current", "maps",
    };
    (void)argc;
    put("{");
    put_ids();
    put_capabilities();
    put_limits();
    put_namespaces();
    put_processes();
    put_descriptors();
    put_links();
    put_masks();
    put_words("argv", argv);
    put_words("environment", environ);
    put(", \"files\": {");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/%s", files[i]);
        put("%s\"%s\": ", i ? ", " : "", files[i]);
        put_file(path);
    }
    put("}}");
    say(fd);
}
