#include "streams.h"

#include "sys.h"
#include "terminal.h"

#include <fcntl.h>

void streams_close(int pipes[PIPE_COUNT])
{
	for (int i = 0; i < PIPE_COUNT; i++)
		close_fd(&pipes[i]);
}

/* Our ends are non-blocking, the child's are not. */
static int open_pipes(int ours[PIPE_COUNT], int theirs[PIPE_COUNT])
{
	for (int i = 0; i < PIPE_COUNT; i++) {
		int ends[2];
		if (pipe2(ends, O_CLOEXEC) < 0)
			return -1;
		ours[i] = ends[i == PIPE_IN];
		theirs[i] = ends[i != PIPE_IN];
		if (fcntl(ours[i], F_SETFL, O_NONBLOCK) < 0)
			return -1;
	}
	return 0;
}

/* A terminal is one file: what reads and writes it are copies of its descriptor. */
static int open_terminal(const struct exec_request *request, int ours[PIPE_COUNT],
			 int theirs[PIPE_COUNT])
{
	if (terminal_open(&ours[PIPE_IN], &theirs[PIPE_IN], request->rows, request->columns) < 0)
		return -1;
	ours[PIPE_OUT] = fcntl(ours[PIPE_IN], F_DUPFD_CLOEXEC, 0);
	theirs[PIPE_OUT] = fcntl(theirs[PIPE_IN], F_DUPFD_CLOEXEC, 0);
	theirs[PIPE_ERR] = fcntl(theirs[PIPE_IN], F_DUPFD_CLOEXEC, 0);
	return ours[PIPE_OUT] < 0 || theirs[PIPE_OUT] < 0 || theirs[PIPE_ERR] < 0 ? -1 : 0;
}

int streams_open(const struct exec_request *request, int ours[PIPE_COUNT], int theirs[PIPE_COUNT])
{
	if (request->flags & EXEC_TERMINAL)
		return open_terminal(request, ours, theirs);
	return open_pipes(ours, theirs);
}

bool stream_is_held(int ours)
{
	struct pollfd stream = { .fd = ours };

	/* Asked for nothing, it tells of a hang-up alone. */
	return poll(&stream, 1, 0) == 0;
}
