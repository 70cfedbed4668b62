#include "own.h"

#include "kernel.h"
#include "sys.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Where close_range(2) is missing, before Linux 5.9: the agent's own files have low numbers. */
#define FILES_MOST 1024

static const struct {
	const char *name;
	int (*run)(const char *path);
} programs[] = {
	{ "send", send_path },
	{ "receive", receive_path },
	{ "ps", list_processes },
};

void own_complain(const char *path, const char *reason)
{
	dprintf(STDERR_FILENO, "box: %s: %s\n", path, reason);
}

/* What execve would have done: the agent's files and its memory are no other process's to look into. */
static void leave_agent(const char *name)
{
	if (syscall(CLOSE_RANGE, STDERR_FILENO + 1, UINT32_MAX, 0) < 0) {
		for (int fd = STDERR_FILENO + 1; fd < FILES_MOST; fd++)
			close(fd);
	}
	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_NAME, name);
	umask(022);
}

_Noreturn void own_run(char *const arguments[])
{
	for (size_t i = 0; i < COUNT_OF(programs); i++) {
		if (strcmp(arguments[0], programs[i].name) != 0 || !arguments[1] || arguments[2])
			continue;
		leave_agent(programs[i].name);
		_exit(programs[i].run(arguments[1]));
	}
	own_complain(arguments[0], "the agent has no such program");
	_exit(127);
}
