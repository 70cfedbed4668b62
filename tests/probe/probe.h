/* A program in the VMM's place that reports its own view and tries what it must not be able to do.
 *
 * Kernel headers are not there under musl: constants stand where they are used, with their source.
 */
#ifndef PROBE_H
#define PROBE_H

#define _GNU_SOURCE
#include <stddef.h>
#include <sys/types.h>

enum { WORD = 512 };

/* What is aimed at: told by the test, which made it. Numbers are 0 and words empty when not told. */
struct targets {
    long victim;         /* a sleeping process on the host, of whoever launched us */
    long threads;        /* how many threads to try to have */
    long memory;         /* how many bytes of memory to try to have */
    long file_size;      /* the limit on a file's size */
    long port;           /* of a TCP listener of the host, on all its addresses */
    int disk;            /* a descriptor that we were given for writing, -1 without */
    char secret[WORD];   /* a file of the host */
    char abstract[WORD]; /* the name of an abstract Unix socket of the host */
    char socket[WORD];   /* the path of a Unix socket of the host */
    char address[WORD];  /* an IPv4 address of the host's that is no loopback */
    char block[WORD];    /* a block device of the host */
    char part[WORD];     /* a file that a VMM reads: its kernel */
    char own[WORD];      /* the VMM's own program */
    char folder[WORD];   /* a directory to make things in: the VMM's root */
    char devices[WORD];  /* a directory to make devices in: the VMM's /dev */
};

/* `call` gives a negative number and errno when it was refused; errno 0 is: killed in the attempt.
 * `past` is an errno that only somebody gets whom the kernel would have let do it. */
struct attempt {
    const char *id;
    const char *sentence;
    int past;
    long (*call)(const struct targets *on);
};

/* Each ends with an attempt without id. */
extern const struct attempt namespace_attempts[];
extern const struct attempt mount_attempts[];
extern const struct attempt socket_attempts[];
extern const struct attempt process_attempts[];
extern const struct attempt file_attempts[];
extern const struct attempt kernel_attempts[];
extern const struct attempt limit_attempts[];
extern const struct attempt last_attempts[];

/* JSON on one line, put together in a buffer of our own and written at once by `say`. */
void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
void put_text(const char *text, size_t size);
void say(int fd);

/* Both give 0, or -1 with errno. */
int one_thread_more(void);
int filter_this_thread(void);
int take_terminal(int fd);
int map_only(int fd);
void become_other(char **argv);

void view(int fd, int argc, char **argv);

/* open(2), and close what came of it: 0 or -1 with errno. */
long opens(const char *path, int flags);

#endif
