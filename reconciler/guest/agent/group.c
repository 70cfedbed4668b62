#include "group.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define KILL_PASSES 1000

static int procs_fds[PORT_COUNT];
static int kill_fds[PORT_COUNT];
static int descendants_fd = -1;

int groups_open(int directory)
{
	char path[64];

	for (size_t i = 0; i < PORT_COUNT; i++) {
		snprintf(path, sizeof(path), "box.%zu", i);
		if (mkdirat(directory, path, 0755) < 0 && errno != EEXIST)
			return -1;
		snprintf(path, sizeof(path), "box.%zu/cgroup.procs", i);
		procs_fds[i] = openat(directory, path, O_RDWR | O_CLOEXEC);
		if (procs_fds[i] < 0)
			return -1;
		/* Linux 5.14; before it, kill_listed() does. */
		snprintf(path, sizeof(path), "box.%zu/cgroup.kill", i);
		kill_fds[i] = openat(directory, path, O_WRONLY | O_CLOEXEC);
	}
	return 0;
}

int groups_use_descendants(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	descendants_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (descendants_fd < 0)
		return -1;
	return 0;
}

bool groups_shared(void)
{
	return descendants_fd >= 0;
}

int group_join(size_t port)
{
	if (descendants_fd >= 0)
		return 0;
	return write_some(procs_fds[port], "0", 1) == 1 ? 0 : -1;
}

static bool is_zombie(pid_t pid)
{
	siginfo_t info = { 0 };

	return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/* Kills what a file of process IDs lists. Returns how many of them were alive. */
static size_t kill_listed(int fd)
{
	char list[4096];
	char *rest = NULL;
	size_t alive = 0;
	ssize_t got = pread(fd, list, sizeof(list) - 1, 0);

	if (got <= 0)
		return 0;
	list[got] = '\0';
	/* A full buffer may end within a number, which would be another process's. */
	if ((size_t)got == sizeof(list) - 1)
		*(strrchr(list, '\n') ? strrchr(list, '\n') : strrchr(list, ' ')) = '\0';
	for (char *word = strtok_r(list, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		uint32_t pid;
		if (!parse_number(word, INT32_MAX, &pid) || pid <= 1 || is_zombie((pid_t)pid))
			continue;
		kill((pid_t)pid, SIGKILL);
		alive++;
	}
	return alive;
}

void group_kill(size_t port)
{
	int list = descendants_fd >= 0 ? descendants_fd : procs_fds[port];
	const struct timespec pause = { .tv_nsec = 1000000 };

	if (descendants_fd < 0 && kill_fds[port] >= 0 && write_some(kill_fds[port], "1", 1) == 1)
		return;
	/* The parent of a process just killed may have forked once more, so until none is left. */
	for (size_t pass = 0; pass < KILL_PASSES && kill_listed(list) > 0; pass++)
		nanosleep(&pause, NULL);
}
