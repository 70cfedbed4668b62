#include "own.h"
#include "sys.h"
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define COPY_SIZE 65536

static struct tar_member member;

/* Where the archive goes: into a directory, its first part under another name if it is to have one. */
static int into = -1;
static char wanted[NAME_MAX + 1];
static char first[NAME_MAX + 1];

/* Why a member is not taken, where errno does not say it. */
static const char *refusal;

/* The directories that the last member lies in and that we made: they get their modes and times when the
 * archive goes on elsewhere, since a mode may keep its own user out. */
static struct {
	int fd;
	size_t length; /* of its name in `place` */
	uint32_t mode;
	uint64_t mtime;
} made[TAR_DEPTH];
static size_t made_count;

/* The name of the last directory of those; and of the member at hand: parts joined by "/". */
static char place[PATH_MAX + NAME_MAX];
static char name_now[PATH_MAX + NAME_MAX];

static int refuse(const char *why)
{
	refusal = why;
	return -1;
}

/* Opens the directory that a name is in, made where it is missing, never by way of a link; *last is
 * then the name's last part, "." for the top itself. -1: errno, or refusal. */
static int open_parent(char *name, const char **last)
{
	AUTO_CLOSE int directory = fcntl(into, F_DUPFD_CLOEXEC, 0);
	unsigned depth = 0;
	char *rest = name;
	int found;

	if (*name == '/')
		return refuse("its name is absolute");
	*last = ".";
	name_now[0] = '\0';
	for (char *part; (part = strsep(&rest, "/"));) {
		if (!*part || strcmp(part, ".") == 0)
			continue;
		if (strcmp(part, "..") == 0)
			return refuse("its name climbs out");
		if (++depth > TAR_DEPTH || strlen(part) > NAME_MAX)
			return refuse("its name is too long");
		if (depth > 1) {
			int next = openat(directory, *last, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (next < 0 && errno == ENOENT && mkdirat(directory, *last, 0777) == 0)
				next = openat(directory, *last,
					      O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
			if (next < 0)
				return -1;
			close(directory);
			directory = next;
		} else if (*wanted) {
			if (!*first)
				strcpy(first, part);
			if (strcmp(first, part) != 0)
				return refuse("it is beside what the archive began with");
			part = wanted;
		}
		*last = part;
		if (depth > 1)
			strcat(name_now, "/");
		strcat(name_now, part);
	}
	if (depth == 0 && *wanted)
		return refuse("the archive holds what lies in a directory, and not one thing");
	found = directory;
	directory = -1;
	return found;
}

static int set_times(int directory, const char *name, uint64_t mtime)
{
	const struct timespec times[2] = {
		{ .tv_nsec = UTIME_NOW },
		{ .tv_sec = (time_t)mtime },
	};

	return utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
}

static int finish_directory(void)
{
	AUTO_CLOSE int fd = made[--made_count].fd;
	const struct timespec times[2] = {
		{ .tv_nsec = UTIME_NOW },
		{ .tv_sec = (time_t)made[made_count].mtime },
	};

	place[made_count ? made[made_count - 1].length : 0] = '\0';
	return futimens(fd, times) < 0 || fchmod(fd, (mode_t)made[made_count].mode) < 0 ? -1 : 0;
}

/* Finishes the directories that the member at hand does not lie in. */
static int leave_directories(void)
{
	while (made_count > 0) {
		size_t length = made[made_count - 1].length;
		if (strncmp(name_now, place, length) == 0 && name_now[length] == '/')
			return 0;
		if (finish_directory() < 0)
			return -1;
	}
	return 0;
}

/* What is in the way of anything but a directory gives way, unless it is one. */
static int make_room(int directory, const char *name)
{
	return unlinkat(directory, name, 0) < 0 && errno != ENOENT ? -1 : 0;
}

static int receive_data(int fd)
{
	static uint8_t buffer[COPY_SIZE];

	for (uint64_t left = member.size; left > 0;) {
		size_t piece = left < COPY_SIZE ? (size_t)left : COPY_SIZE;
		if (!tar_read(buffer, piece))
			return refuse("the archive is cut short");
		if (tar_write(fd, buffer, piece) < 0)
			return -1;
		left -= piece;
	}
	return tar_read(buffer, tar_padding(member.size)) ? 0 : refuse("the archive is cut short");
}

static int receive_file(int directory, const char *name)
{
	AUTO_CLOSE int fd = -1;

	if (make_room(directory, name) < 0)
		return -1;
	fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || receive_data(fd) < 0 || fchmod(fd, (mode_t)member.mode) < 0)
		return -1;
	return set_times(directory, name, member.mtime);
}

static int receive_directory(int directory, const char *name)
{
	int fd;

	if (strcmp(name, ".") == 0)
		return 0;
	if (mkdirat(directory, name, 0700) < 0) {
		struct stat there;
		if (errno != EEXIST || fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW) < 0)
			return -1;
		errno = ENOTDIR;
		return S_ISDIR(there.st_mode) ? 0 : -1;
	}
	fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	/* As many as a name has parts at the most: each lies in the one before. */
	made[made_count].fd = fd;
	made[made_count].length = strlen(name_now);
	made[made_count].mode = member.mode;
	made[made_count].mtime = member.mtime;
	made_count++;
	strcpy(place, name_now);
	return 0;
}

static int receive_hard_link(int directory, const char *name)
{
	AUTO_CLOSE int from = -1;
	const char *target;

	from = open_parent(member.link, &target);
	if (from < 0 || make_room(directory, name) < 0)
		return -1;
	return linkat(from, target, directory, name, 0);
}

static int receive_link(int directory, const char *name)
{
	if (make_room(directory, name) < 0 || symlinkat(member.link, directory, name) < 0)
		return -1;
	return set_times(directory, name, member.mtime);
}

static int receive_member(void)
{
	static char name[PATH_MAX];
	const char *last;
	AUTO_CLOSE int directory = -1;

	memcpy(name, member.name, sizeof(name));
	directory = open_parent(name, &last);
	if (directory < 0 || leave_directories() < 0)
		return -1;
	if (member.type == '5')
		return receive_directory(directory, last);
	if (strcmp(last, ".") == 0)
		return refuse("its name is empty");
	if (member.type == '0')
		return receive_file(directory, last);
	if (member.type == '1')
		return receive_hard_link(directory, last);
	if (member.type == '2')
		return receive_link(directory, last);
	return refuse("it is neither a file, a directory nor a link");
}

/* An existing directory gets what is in the archive; else the archive's one thing gets this name. */
static int open_target(const char *given)
{
	static char parent[PATH_MAX];
	const char *slash = strrchr(given, '/');
	const char *name = slash ? slash + 1 : given;
	size_t length = (size_t)(name - given);

	into = open(*given ? given : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (into >= 0)
		return 0;
	/* A name that ends with a slash is that of a directory. */
	if (!*name || (errno != ENOENT && errno != ENOTDIR))
		return -1;
	if (length >= sizeof(parent) || strlen(name) > NAME_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(parent, given, length);
	strcpy(wanted, name);
	into = open(length ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return into < 0 ? -1 : 0;
}

int receive_path(const char *given)
{
	int got;

	if (open_target(given) < 0) {
		own_complain(given, strerror(errno));
		return 1;
	}
	while ((got = tar_read_header(&member, &refusal)) > 0) {
		refusal = NULL;
		if (receive_member() == 0)
			continue;
		if (!refusal)
			refusal = strerror(errno);
		own_complain(member.name, refusal);
		return 1;
	}
	while (got == 0 && made_count > 0) {
		if (finish_directory() < 0) {
			refusal = strerror(errno);
			got = -1;
		}
	}
	if (got < 0)
		own_complain(given, refusal);
	return got < 0;
}
