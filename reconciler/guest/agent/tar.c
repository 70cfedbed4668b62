#include "tar.h"

#include "sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A header's fields, POSIX pax(1): offset and length. */
enum { NAME = 0, NAME_SIZE = 100 };
enum { MODE = 100, UID = 108, GID = 116, SHORT_SIZE = 8 };
enum { SIZE = 124, MTIME = 136, LONG_SIZE = 12 };
enum { CHECKSUM = 148, TYPE = 156, LINK = 157, LINK_SIZE = 100, MAGIC = 257 };
enum { PREFIX = 345, PREFIX_SIZE = 155 };

#define OCTAL_MOST ((uint64_t)1 << 33) /* of a long field: eleven digits */
/* Two paths and a number, each with its length and key. */
#define PAX_MAX (2 * PATH_MAX + 256)

static const uint8_t zeros[2 * TAR_BLOCK];

int tar_write(int fd, const void *buffer, size_t size)
{
	const uint8_t *bytes = buffer;

	while (size > 0) {
		ssize_t put = write_some(fd, bytes, size);
		if (put < 0)
			return -1;
		bytes += put;
		size -= (size_t)put;
	}
	return 0;
}

bool tar_read(void *buffer, size_t size)
{
	uint8_t *bytes = buffer;

	while (size > 0) {
		ssize_t got = read_some(STDIN_FILENO, bytes, size);
		if (got <= 0)
			return false;
		bytes += got;
		size -= (size_t)got;
	}
	return true;
}

static unsigned checksum(const uint8_t *block)
{
	unsigned sum = 8 * ' ';

	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= CHECKSUM && i < CHECKSUM + SHORT_SIZE ? 0 : block[i];
	return sum;
}

static void put_octal(uint8_t *field, size_t size, uint64_t value)
{
	char digits[24];

	snprintf(digits, sizeof(digits), "%0*llo", (int)size - 1, (unsigned long long)value);
	memcpy(field, digits, size);
}

static int write_block(const char *name, const char *link, char type, uint32_t mode, uint64_t size,
		       uint64_t mtime)
{
	uint8_t block[TAR_BLOCK] = { 0 };

	memcpy(block + NAME, name, min_size(strlen(name), NAME_SIZE));
	memcpy(block + LINK, link, min_size(strlen(link), LINK_SIZE));
	put_octal(block + MODE, SHORT_SIZE, mode);
	put_octal(block + UID, SHORT_SIZE, 0);
	put_octal(block + GID, SHORT_SIZE, 0);
	put_octal(block + SIZE, LONG_SIZE, size < OCTAL_MOST ? size : 0);
	put_octal(block + MTIME, LONG_SIZE, mtime < OCTAL_MOST ? mtime : 0);
	block[TYPE] = (uint8_t)type;
	memcpy(block + MAGIC, "ustar\0" "00", 8);
	put_octal(block + CHECKSUM, SHORT_SIZE - 1, checksum(block));
	block[CHECKSUM + SHORT_SIZE - 1] = ' ';
	return tar_write(STDOUT_FILENO, block, sizeof(block));
}

/* Appends "length key=value\n", where the length counts its own digits too. */
static void add_record(char *records, size_t *length, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3;
	char digits[24];
	int size = snprintf(digits, sizeof(digits), "%zu", rest + 1);

	size = snprintf(digits, sizeof(digits), "%zu", rest + (size_t)size);
	size = snprintf(digits, sizeof(digits), "%zu", rest + (size_t)size);
	*length += (size_t)snprintf(records + *length, PAX_MAX - *length, "%s %s=%s\n", digits, key,
				    value);
}

static int write_pax(const struct tar_member *member)
{
	static char records[PAX_MAX];
	char number[24];
	size_t length = 0;

	if (strlen(member->name) > NAME_SIZE)
		add_record(records, &length, "path", member->name);
	if (strlen(member->link) > LINK_SIZE)
		add_record(records, &length, "linkpath", member->link);
	if (member->size >= OCTAL_MOST) {
		snprintf(number, sizeof(number), "%llu", (unsigned long long)member->size);
		add_record(records, &length, "size", number);
	}
	if (length == 0)
		return 0;
	if (write_block("PaxHeader", "", 'x', 0644, length, 0) < 0 ||
	    tar_write(STDOUT_FILENO, records, length) < 0)
		return -1;
	return tar_write_padding(length);
}

int tar_write_header(const struct tar_member *member)
{
	if (write_pax(member) < 0)
		return -1;
	return write_block(member->name, member->link, member->type, member->mode, member->size,
			   member->mtime);
}

int tar_write_padding(uint64_t size)
{
	return tar_write(STDOUT_FILENO, zeros, tar_padding(size));
}

int tar_write_end(void)
{
	return tar_write(STDOUT_FILENO, zeros, sizeof(zeros));
}

static bool get_octal(const uint8_t *field, size_t size, uint64_t *value)
{
	size_t at = 0;

	*value = 0;
	while (at < size && field[at] >= '0' && field[at] <= '7')
		*value = *value * 8 + (uint64_t)(field[at++] - '0');
	if (at == 0)
		return field[0] == '\0';
	return at == size || field[at] == '\0' || field[at] == ' ';
}

static bool get_decimal(const char *text, uint64_t *value)
{
	*value = 0;
	if (!*text)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || *value > TAR_SIZE_MAX)
			return false;
		*value = *value * 10 + (uint64_t)(*text - '0');
	}
	return true;
}

static void get_text(char *text, const uint8_t *field, size_t size)
{
	memcpy(text, field, size);
	text[size] = '\0';
}

/* What the pax records before a member say of it; "" and false: nothing. */
struct pax {
	char path[PATH_MAX];
	char link[PATH_MAX];
	bool has_size;
	uint64_t size;
};

static bool keep_path(char *path, const char *value)
{
	size_t length = strlen(value);

	if (length >= PATH_MAX)
		return false;
	memcpy(path, value, length + 1);
	return true;
}

static bool keep_record(struct pax *pax, const char *key, const char *value)
{
	if (strcmp(key, "path") == 0)
		return keep_path(pax->path, value);
	if (strcmp(key, "linkpath") == 0)
		return keep_path(pax->link, value);
	if (strcmp(key, "size") == 0) {
		pax->has_size = true;
		return get_decimal(value, &pax->size);
	}
	return true;
}

/* One record, cut in place; how long it is, or 0 when it is none. */
static size_t read_record(struct pax *pax, char *record, size_t left)
{
	size_t length = 0, at = 0;
	char *value;

	while (at < left && record[at] >= '0' && record[at] <= '9' && length <= left)
		length = length * 10 + (size_t)(record[at++] - '0');
	if (at == 0 || length > left || length < at + 3 || record[at] != ' ' || record[length - 1] != '\n')
		return 0;
	record[length - 1] = '\0';
	if (strlen(record) != length - 1)
		return 0;
	value = strchr(record + at, '=');
	if (!value)
		return 0;
	*value++ = '\0';
	return keep_record(pax, record + at + 1, value) ? length : 0;
}

static bool read_pax(struct pax *pax, uint64_t size)
{
	static char records[PAX_MAX];
	uint8_t rest[TAR_BLOCK];
	size_t at = 0, used;

	if (size > sizeof(records) || !tar_read(records, (size_t)size) || !tar_read(rest, tar_padding(size)))
		return false;
	for (; at < size; at += used) {
		used = read_record(pax, records + at, (size_t)size - at);
		if (used == 0)
			return false;
	}
	return true;
}

static bool is_zero(const uint8_t *block)
{
	return memcmp(block, zeros, TAR_BLOCK) == 0;
}

static bool read_block(uint8_t *block, struct tar_member *member)
{
	uint64_t sum, mode;

	if (!get_octal(block + CHECKSUM, SHORT_SIZE, &sum) || sum != checksum(block))
		return false;
	if (!get_octal(block + MODE, SHORT_SIZE, &mode) || !get_octal(block + SIZE, LONG_SIZE, &member->size) ||
	    !get_octal(block + MTIME, LONG_SIZE, &member->mtime))
		return false;
	member->mode = (uint32_t)mode & 0777;
	member->type = (char)block[TYPE];
	get_text(member->link, block + LINK, LINK_SIZE);
	get_text(member->name, block + PREFIX, PREFIX_SIZE);
	if (*member->name)
		strcat(member->name, "/");
	get_text(member->name + strlen(member->name), block + NAME, NAME_SIZE);
	return true;
}

int tar_read_header(struct tar_member *member, const char **reason)
{
	static struct pax pax;
	uint8_t block[TAR_BLOCK];

	memset(&pax, 0, sizeof(pax));
	for (;;) {
		*reason = "the archive is cut short";
		if (!tar_read(block, sizeof(block)))
			return -1;
		if (is_zero(block))
			return 0;
		*reason = "the archive has a broken header";
		if (!read_block(block, member))
			return -1;
		if (member->type != 'x')
			break;
		if (!read_pax(&pax, member->size))
			return -1;
	}
	if (*pax.path)
		memcpy(member->name, pax.path, sizeof(pax.path));
	if (*pax.link)
		memcpy(member->link, pax.link, sizeof(pax.link));
	if (pax.has_size)
		member->size = pax.size;
	if (member->type != '0')
		member->size = 0;
	return member->size <= TAR_SIZE_MAX ? 1 : -1;
}
