/* Tar streams as far as the agent speaks them: ustar, and pax records for what does not fit there. */
#ifndef BOX_TAR_H
#define BOX_TAR_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TAR_BLOCK 512
#define TAR_DEPTH 256 /* directories in one another */
#define TAR_SIZE_MAX ((uint64_t)1 << 40)

struct tar_member {
	char name[PATH_MAX];
	char link[PATH_MAX];
	char type; /* '0' file, '1' hard link, '2' symbolic link, '5' directory */
	uint32_t mode;
	uint64_t size, mtime;
};

/* Writes the blocks before a member's data to stdout; -1 and errno on failure. */
int tar_write_header(const struct tar_member *member);

/* Writes the zeros behind size bytes of data, or the end of an archive; -1 and errno. */
int tar_write_padding(uint64_t size);
int tar_write_end(void);

/* Reads the next header from stdin: 1, or 0 at the archive's end, or -1 with the reason. */
int tar_read_header(struct tar_member *member, const char **reason);

/* Reads size bytes from stdin; false when there are fewer. */
bool tar_read(void *buffer, size_t size);

/* Writes size bytes to fd, which does not have to take them at once; -1 and errno. */
int tar_write(int fd, const void *buffer, size_t size);

static inline size_t tar_padding(uint64_t size)
{
	return (size_t)(-size % TAR_BLOCK);
}

#endif
