/* Thin wrappers of the calls that every part of the agent needs: retried on EINTR, fds closed by
 * scope, numbers parsed with bounds. */
#ifndef BOX_SYS_H
#define BOX_SYS_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

#define AUTO_CLOSE __attribute__((cleanup(close_fd)))

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Milliseconds of CLOCK_MONOTONIC: it stands still while the VM is stopped, and CLAIM's setting of
 * the wall clock does not move it. */
int64_t now_ms(void);

/* Makes this process SCHED_BATCH or SCHED_OTHER; musl's own function for it does nothing. */
void set_policy(int policy);

ssize_t read_some(int fd, void *buffer, size_t size);
ssize_t write_some(int fd, const void *buffer, size_t size);

/* The file's first size - 1 bytes, NUL-terminated, without trailing white space; -1 and errno when
 * it cannot be read. */
ssize_t read_text(const char *path, char *text, size_t size);

/* Writes to an existing file, or makes it; never through a symlink, never waiting for a FIFO. */
int write_text(const char *path, const char *text);

/* A decimal number and nothing else, at most max. */
bool parse_number(const char *text, uint32_t max, uint32_t *number);

#endif
