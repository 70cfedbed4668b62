#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void set_policy(int policy)
{
	const struct sched_param none = { 0 };

	syscall(SYS_sched_setscheduler, 0, policy, &none);
}

ssize_t read_some(int fd, void *buffer, size_t size)
{
	ssize_t got;

	do {
		got = read(fd, buffer, size);
	} while (got < 0 && errno == EINTR);
	return got;
}

ssize_t write_some(int fd, const void *buffer, size_t size)
{
	ssize_t put;

	do {
		put = write(fd, buffer, size);
	} while (put < 0 && errno == EINTR);
	return put;
}

ssize_t read_text(const char *path, char *text, size_t size)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;

	text[0] = '\0';
	if (fd < 0)
		return -1;
	while (length < size - 1) {
		ssize_t got = read_some(fd, text + length, size - 1 - length);
		if (got < 0)
			return -1;
		if (got == 0)
			break;
		length += (size_t)got;
	}
	while (length > 0 && strchr(" \n\t", text[length - 1]))
		length--;
	text[length] = '\0';
	return (ssize_t)length;
}

int write_text(const char *path, const char *text)
{
	AUTO_CLOSE int fd = open(path,
				 O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
				 0644);
	size_t length = strlen(text);

	if (fd < 0)
		return -1;
	return write_some(fd, text, length) == (ssize_t)length ? 0 : -1;
}

bool parse_number(const char *text, uint32_t max, uint32_t *number)
{
	uint64_t value = 0;

	if (*text == '\0')
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return false;
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > max)
			return false;
	}
	*number = (uint32_t)value;
	return true;
}
