#include "own.h"
#include "sys.h"
#include "tar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define COPY_SIZE 65536

/* The member that is being written, and the path that the user knows it by. */
static struct tar_member member;
static char path[PATH_MAX];

/* What is wrong, where errno does not say it. */
static const char *trouble;

static int refuse(const char *why)
{
	trouble = why;
	return -1;
}

static void describe(const struct stat *file, char type)
{
	member.type = type;
	member.mode = file->st_mode & 0777;
	member.mtime = file->st_mtime > 0 ? (uint64_t)file->st_mtime : 0;
	member.size = type == '0' ? (uint64_t)file->st_size : 0;
	member.link[0] = '\0';
}

/* A file's data has to be as long as its header said, whatever becomes of the file meanwhile. */
static int send_data(int fd, uint64_t left)
{
	static uint8_t buffer[COPY_SIZE];

	while (left > 0) {
		ssize_t got = read_some(fd, buffer, left < COPY_SIZE ? (size_t)left : COPY_SIZE);
		if (got == 0)
			return refuse("it became shorter while it was read");
		if (got <= 0 || tar_write(STDOUT_FILENO, buffer, (size_t)got) < 0)
			return -1;
		left -= (uint64_t)got;
	}
	return tar_write_padding(member.size);
}

static int send_file(int directory, const char *name, int follow)
{
	AUTO_CLOSE int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | follow);
	struct stat file;

	if (fd < 0 || fstat(fd, &file) < 0)
		return -1;
	if (!S_ISREG(file.st_mode))
		return refuse("it became another file just now");
	describe(&file, '0');
	if (tar_write_header(&member) < 0)
		return -1;
	return send_data(fd, member.size);
}

static int send_link(int directory, const char *name, const struct stat *file)
{
	ssize_t length;

	describe(file, '2');
	length = readlinkat(directory, name, member.link, sizeof(member.link) - 1);
	if (length < 0)
		return -1;
	member.link[length] = '\0';
	return tar_write_header(&member);
}

/* Appends a name to a path; the length to cut it to afterwards, or 0 when it is too long. */
static size_t append(char *to, const char *name)
{
	size_t before = strlen(to), length = strlen(name);
	bool needs_slash = before > 0 && to[before - 1] != '/';

	if (before + length + 2 > PATH_MAX)
		return 0;
	if (needs_slash)
		to[before] = '/';
	memcpy(to + before + needs_slash, name, length + 1);
	return before;
}

static void close_directory(DIR **directory)
{
	if (*directory)
		closedir(*directory);
}

static int send_entry(int directory, const char *name, unsigned depth);

static int send_content(int fd, unsigned depth)
{
	__attribute__((cleanup(close_directory))) DIR *directory = fdopendir(fd);
	struct dirent *entry;

	if (!directory) {
		close(fd);
		return -1;
	}
	while ((errno = 0, entry = readdir(directory))) {
		size_t name_before = strlen(member.name), path_before = strlen(path);
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		errno = ENAMETOOLONG;
		if ((!append(member.name, entry->d_name) && name_before > 0) ||
		    (!append(path, entry->d_name) && path_before > 0))
			return -1;
		if (send_entry(dirfd(directory), entry->d_name, depth) < 0)
			return -1;
		member.name[name_before] = path[path_before] = '\0';
	}
	return errno ? -1 : 0;
}

static int send_directory(int directory, const char *name, unsigned depth, int follow)
{
	int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow);
	struct stat file;

	if (fd < 0)
		return -1;
	if (depth < TAR_DEPTH && fstat(fd, &file) == 0) {
		describe(&file, '5');
		if (tar_write_header(&member) == 0)
			return send_content(fd, depth + 1);
	}
	close(fd);
	return depth < TAR_DEPTH ? -1 : refuse("it lies too deep");
}

static int send_entry(int directory, const char *name, unsigned depth)
{
	struct stat file;

	if (fstatat(directory, name, &file, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	if (S_ISDIR(file.st_mode))
		return send_directory(directory, name, depth, O_NOFOLLOW);
	if (S_ISREG(file.st_mode))
		return send_file(directory, name, O_NOFOLLOW);
	if (S_ISLNK(file.st_mode))
		return send_link(directory, name, &file);
	own_complain(path, "left out, it is neither a file, a directory nor a link");
	return 0;
}

/* The last part of what the user named, "." where that is the directory itself. */
static void name_top(const char *given)
{
	size_t end = strlen(given), start;

	while (end > 0 && given[end - 1] == '/')
		end--;
	for (start = end; start > 0 && given[start - 1] != '/'; start--)
		continue;
	memcpy(member.name, given + start, end - start);
	member.name[end - start] = '\0';
	if (!*member.name || strcmp(member.name, "..") == 0)
		strcpy(member.name, ".");
}

/* What the user named is followed if it is a link; what lies below is sent as it is. */
static int send_top(const char *given)
{
	struct stat file;

	if (strlen(given) >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(path, given);
	name_top(given);
	if (stat(given, &file) < 0)
		return -1;
	if (S_ISDIR(file.st_mode))
		return send_directory(AT_FDCWD, given, 0, 0);
	if (S_ISREG(file.st_mode))
		return send_file(AT_FDCWD, given, 0);
	return refuse("it is neither a file nor a directory");
}

int send_path(const char *given)
{
	if (send_top(given) < 0 || tar_write_end() < 0) {
		own_complain(path, trouble ? trouble : strerror(errno));
		return 1;
	}
	return 0;
}
