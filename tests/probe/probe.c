/* One command a line, one line of JSON as the answer:
 *   NAME=VALUE   aim at this; no answer. A descriptor that comes with it is the disk.
 *   list         every attempt's id and sentence
 *   view         what we are, as we see it
 *   try ID       make the attempt
 *   thread       have one thread more
 *   filter       put this thread, and no other, under a filter of system calls
 *   map          have what was given as the disk in memory, and close it
 *   terminal     make what was given as the disk the controlling terminal, and close it
 *   become       be the same program out of memory; no answer
 * In the VMM's place (argv is QEMU's): greets on descriptor 3 as QEMU's control socket does, takes
 * commands on 4, and sleeps when nobody sends any more. Alone: stdin and stdout, to their end.
 */
#include "probe.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONTROL = 3, PORT = 4, ANSWER = 1 << 19, LINE = 1024 };

static char answer[ANSWER];
static size_t used;
static struct targets targets = { .disk = -1 };

static const struct attempt *const tables[] = {
    namespace_attempts, mount_attempts, socket_attempts, process_attempts,
    file_attempts,      kernel_attempts, limit_attempts, last_attempts,
};

void put(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(answer + used, ANSWER - used, format, arguments);
    va_end(arguments);
    if (size < 0 || (size_t)size >= ANSWER - used)
        abort();
    used += (size_t)size;
}

void put_text(const char *text, size_t size)
{
    put("\"");
    for (size_t i = 0; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        if (byte == '"' || byte == '\\' || byte < 0x20 || byte > 0x7e)
            put("\\u%04x", byte);
        else
            put("%c", byte);
    }
    put("\"");
}

void say(int fd)
{
    put("\n");
    for (size_t done = 0; done < used;) {
        ssize_t size = write(fd, answer + done, used - done);
        if (size < 0)
            break;
        done += (size_t)size;
    }
    used = 0;
}

long opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static void list(int fd)
{
    put("[");
    const char *comma = "";
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
        for (const struct attempt *each = tables[table]; each->id; each++) {
            put("%s{\"id\": \"%s\", \"sentence\": \"%s\"}", comma, each->id, each->sentence);
            comma = ", ";
        }
    put("]");
    say(fd);
}

static void attempt(int fd, const struct attempt *each)
{
    errno = 0;
    long result = each->call(&targets);
    int error = errno;
    const char *outcome = "denied";
    if (result >= 0)
        outcome = "worked", error = 0;
    else if (error == 0)
        outcome = "killed";
    else if (error == each->past)
        outcome = "worked";
    put("{\"id\": \"%s\", \"sentence\": \"%s\", \"outcome\": \"%s\", \"errno\": %d, \"value\": %ld}",
        each->id, each->sentence, outcome, error, result);
    say(fd);
}

static void try(int fd, const char *id)
{
    for (size_t table = 0; table < sizeof tables / sizeof *tables; table++)
        for (const struct attempt *each = tables[table]; each->id; each++)
            if (strcmp(each->id, id) == 0) {
                attempt(fd, each);
                return;
            }
    put("{\"id\": \"%s\", \"outcome\": \"unknown\"}", id);
    say(fd);
}

static void aim(const char *name, const char *value)
{
    static const struct {
        const char *name;
        long *number;
        char *word;
    } all[] = {
        { "victim", &targets.victim, NULL },
        { "threads", &targets.threads, NULL },
        { "memory", &targets.memory, NULL },
        { "file_size", &targets.file_size, NULL },
        { "port", &targets.port, NULL },
        { "secret", NULL, targets.secret },
        { "abstract", NULL, targets.abstract },
        { "socket", NULL, targets.socket },
        { "address", NULL, targets.address },
        { "block", NULL, targets.block },
        { "part", NULL, targets.part },
        { "own", NULL, targets.own },
        { "folder", NULL, targets.folder },
        { "devices", NULL, targets.devices },
    };
    if (strcmp(name, "disk") == 0 && *value)
        targets.disk = open(value, O_RDWR | O_CLOEXEC);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) != 0)
            continue;
        if (all[i].number)
            *all[i].number = strtol(value, NULL, 10);
        else
            snprintf(all[i].word, WORD, "%s", value);
    }
}

/* One byte, and perhaps a descriptor beside it; false at the end. */
static int take(int fd, char *byte)
{
    char space[CMSG_SPACE(sizeof(int))];
    struct iovec part = { .iov_base = byte, .iov_len = 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    message.msg_control = space;
    message.msg_controllen = sizeof space;
    ssize_t size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (size < 0 && errno == ENOTSOCK)
        return read(fd, byte, 1) == 1;
    if (size != 1)
        return 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&targets.disk, CMSG_DATA(header), sizeof(int));
    return 1;
}

static void done(int fd, const char *command)
{
    put("{\"done\": \"%s\"}", command);
    say(fd);
}

static void serve(int from, int to, int argc, char **argv)
{
    char line[LINE];
    size_t size = 0;
    while (take(from, &line[size])) {
        if (line[size] != '\n') {
            if (++size == sizeof line)
                abort();
            continue;
        }
        line[size] = '\0';
        size = 0;
        char *equals = strchr(line, '=');
        if (equals) {
            *equals = '\0';
            aim(line, equals + 1);
        } else if (strcmp(line, "list") == 0) {
            list(to);
        } else if (strcmp(line, "view") == 0) {
            view(to, argc, argv);
        } else if (strncmp(line, "try ", 4) == 0) {
            try(to, line + 4);
        } else if (strcmp(line, "thread") == 0 && one_thread_more() == 0) {
            done(to, line);
        } else if (strcmp(line, "filter") == 0 && filter_this_thread() == 0) {
            done(to, line);
        } else if (strcmp(line, "terminal") == 0 && take_terminal(targets.disk) == 0) {
            done(to, line);
        } else if (strcmp(line, "map") == 0 && map_only(targets.disk) == 0) {
            done(to, line);
        } else if (strcmp(line, "become") == 0) {
            become_other(argv);
        }
    }
}

/* As QEMU: greet, and take the one command of the negotiation. */
static int greet(void)
{
    static const char hello[] = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\n";
    static const char yes[] = "{\"return\": {}}\n";
    char byte;
    int fd = accept4(CONTROL, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || write(fd, hello, sizeof hello - 1) < 0)
        return -1;
    do {
        if (read(fd, &byte, 1) != 1)
            return -1;
    } while (byte != '\n');
    return write(fd, yes, sizeof yes - 1) < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    /* Else the attempt on the limit of a file's size is our end. */
    signal(SIGXFSZ, SIG_IGN);
    if (argc == 1) {
        serve(STDIN_FILENO, STDOUT_FILENO, argc, argv);
        _exit(0);
    }
    if (greet() == 0) {
        int fd = accept4(PORT, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            serve(fd, fd, argc, argv);
    }
    for (;;)
        poll(NULL, 0, -1);
}
