/* Stdin, stdout and stderr of a command: three pipes, or a terminal. */
#ifndef BOX_STREAMS_H
#define BOX_STREAMS_H

#include "child.h"
#include "port.h"

/* Opens both ends of each. Whoever called it closes what is open, after a failure too. Returns -1 and
 * errno on failure. */
int streams_open(const struct exec_request *request, int ours[PIPE_COUNT], int theirs[PIPE_COUNT]);

void streams_close(int pipes[PIPE_COUNT]);

/* Whether somebody can still write what comes out here, whatever is in it already. */
bool stream_is_held(int ours);

#endif
