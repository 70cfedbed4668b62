/* The command of a session, from EXEC to EXIT. */
#ifndef BOX_COMMAND_H
#define BOX_COMMAND_H

#include "child.h"
#include "port.h"

/* Starts it; 0 or an errno. */
int command_start(struct port *port, const struct exec_request *request, int64_t now);

/* Takes stdin from the client; false when it sent more than the window allows. */
bool command_stdin(struct port *port, const uint8_t *bytes, size_t size);
void command_stdin_end(struct port *port);

/* Gives its terminal, if it has one, another size. */
void command_resize(struct port *port, uint16_t rows, uint16_t columns);

/* Sends a signal to the leader's process group. */
void command_signal(struct port *port, int signo);

/* Moves what can be moved without waiting: stdin, output, acknowledgements, the exit. */
void command_step(struct port *port, int64_t now);

/* Kills it and forgets it. */
void command_abandon(struct port *port);

/* Adds what the command waits for to polls. Returns how many were added, at most PIPE_COUNT. */
size_t command_polls(const struct port *port, struct pollfd *polls);

/* When command_step() has to be called at the latest; INT64_MAX: no such time. */
int64_t command_wakeup(const struct port *port);

/* Collects every child that ended, our own and the orphans that PID 1 inherits. Returns whether any
 * child is left. */
bool commands_reap(int64_t now);

#endif
