#include "group.h"
#include "own.h"
#include "sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define COMMAND_MAX 1024 /* bytes of a command line that are told */
#define NAME_SIZE 64
#define ESCAPED 4 /* characters a byte, at most */
#define KERNEL_THREAD 0x00200000 /* PF_KTHREAD of include/linux/sched.h */

struct process {
	int pid, parent;
	unsigned uid;
	char state;
	uint64_t rss_kib, elapsed_seconds;
	char port[8];
	char name[NAME_SIZE * ESCAPED + 1];
	char command[COMMAND_MAX * ESCAPED + 1];
};

static const char *proc;

/* The first bytes of a process's file, NUL-terminated; -1 when the process is gone. */
static ssize_t read_file(const char *pid, const char *name, char *text, size_t size)
{
	char path[PATH_MAX];
	ssize_t got;
	int fd;

	snprintf(path, sizeof(path), "%s/%s/%s", proc, pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = read_some(fd, text, size - 1);
	close(fd);
	text[got < 0 ? 0 : got] = '\0';
	return got;
}

/* One word: no white space, no control character, nothing beyond ASCII. A NUL ends a word. */
static void escape(char *to, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)bytes[i];
		if (c == '\0')
			*to++ = ' ';
		else if (c <= ' ' || c >= 0x7f || c == '\\')
			to += snprintf(to, ESCAPED + 1, "\\x%02x", c);
		else
			*to++ = (char)c;
	}
	*to = '\0';
}

/* Returns false for a kernel thread and for what is gone. Its name may hold anything, a ')' too. */
static bool read_stat(const char *pid, uint64_t uptime, struct process *process)
{
	char text[1024], *open_at, *close_at;
	uint64_t start;
	unsigned flags;
	long pages;

	if (read_file(pid, "stat", text, sizeof(text)) <= 0)
		return false;
	open_at = strchr(text, '(');
	close_at = strrchr(text, ')');
	if (!open_at || !close_at || close_at - open_at > NAME_SIZE)
		return false;
	escape(process->name, open_at + 1, (size_t)(close_at - open_at - 1));
	if (sscanf(close_at + 1,
		   " %c %d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64
		   " %*u %ld",
		   &process->state, &process->parent, &flags, &start, &pages) != 5)
		return false;
	start /= (uint64_t)sysconf(_SC_CLK_TCK);
	process->elapsed_seconds = uptime > start ? uptime - start : 0;
	process->rss_kib = (uint64_t)(pages > 0 ? pages : 0) * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
	return !(flags & KERNEL_THREAD);
}

static bool read_uid(const char *pid, struct process *process)
{
	char text[4096], *line;

	if (read_file(pid, "status", text, sizeof(text)) <= 0)
		return false;
	line = strstr(text, "\nUid:\t");
	return line && sscanf(line, "\nUid:\t%*u\t%u", &process->uid) == 1;
}

/* Which port's command it belongs to; "-" for none. */
static void read_port(const char *pid, struct process *process)
{
	char text[512], *group;
	unsigned port;

	strcpy(process->port, "-");
	if (read_file(pid, "cgroup", text, sizeof(text)) <= 0)
		return;
	group = strstr(text, "0::/box.");
	if (group && sscanf(group, "0::/box.%2u", &port) == 1 && port < PORT_COUNT)
		snprintf(process->port, sizeof(process->port), "%u", port);
}

static bool read_process(const char *pid, uint64_t uptime, struct process *process)
{
	char text[COMMAND_MAX + 1];
	ssize_t length;

	if (!read_stat(pid, uptime, process) || !read_uid(pid, process))
		return false;
	read_port(pid, process);
	length = read_file(pid, "cmdline", text, sizeof(text));
	if (length > 0 && text[length - 1] == '\0')
		length--;
	escape(process->command, text, length > 0 ? (size_t)length : 0);
	return true;
}

static uint64_t read_uptime(void)
{
	uint64_t seconds = 0;
	char text[64];

	if (read_file(".", "uptime", text, sizeof(text)) > 0 && sscanf(text, "%" SCNu64, &seconds) != 1)
		seconds = 0;
	return seconds;
}

int list_processes(const char *given)
{
	static struct process process;
	DIR *directory = opendir(given);
	uint64_t uptime;
	struct dirent *entry;
	uint32_t pid;

	proc = given;
	if (!directory) {
		own_complain(given, strerror(errno));
		return 1;
	}
	uptime = read_uptime();
	while ((entry = readdir(directory))) {
		if (!parse_number(entry->d_name, INT32_MAX, &pid) || (pid_t)pid == getpid() ||
		    !read_process(entry->d_name, uptime, &process))
			continue;
		process.pid = (int)pid;
		if (dprintf(STDOUT_FILENO, "%d\t%d\t%u\t%c\t%" PRIu64 "\t%" PRIu64 "\t%s\t%s\t%s\n",
			    process.pid, process.parent, process.uid, process.state, process.rss_kib,
			    process.elapsed_seconds, process.port, process.name, process.command) < 0)
			return 1;
	}
	closedir(directory);
	return 0;
}
