#include "command.h"

#include "output.h"
#include "streams.h"
#include "sys.h"
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#define DRAIN_MS 250
#define ACK_BATCH 32768

int command_start(struct port *port, const struct exec_request *request, int64_t now)
{
	struct command *command = &port->command;
	int theirs[PIPE_COUNT] = { -1, -1, -1 };
	uint8_t started[4];

	command->ring_start = command->ring_length = 0;
	command->unacknowledged = 0;
	command->stdin_ended = command->end_typed = false;
	command->timed_out = command->truncated = false;
	command->has_terminal = request->flags & EXEC_TERMINAL;
	command->pid = -1;
	if (streams_open(request, command->pipes, theirs) == 0)
		command->pid = fork();
	if (command->pid == 0)
		child_run(request, port->index, theirs);
	if (command->pid < 0) {
		int error = errno;
		streams_close(theirs);
		streams_close(command->pipes);
		return error;
	}
	streams_close(theirs);
	command->state = COMMAND_RUNNING;
	command->kill_at = request->timeout_ms ? now + request->timeout_ms : 0;
	put_u32(started, (uint32_t)command->pid);
	return output_frame(port, REP_STARTED, started, sizeof(started)) ? 0 : ENOBUFS;
}

/* A terminal that nothing has open any more takes no input, but closing it would hang up on a command
 * that only put its input and output elsewhere. */
static bool takes_input(const struct command *command)
{
	if (command->has_terminal)
		return command->pipes[PIPE_OUT] >= 0;
	return command->pipes[PIPE_IN] >= 0;
}

bool command_stdin(struct port *port, const uint8_t *bytes, size_t size)
{
	struct command *command = &port->command;
	size_t end, first;

	if (command->state == COMMAND_NONE)
		return true; /* it crossed the EXIT on its way */
	if (command->stdin_ended)
		return false;
	if (size > STDIN_WINDOW - command->ring_length - command->unacknowledged)
		return false;
	if (!takes_input(command)) {
		command->unacknowledged += (uint32_t)size;
		return true;
	}
	end = (command->ring_start + command->ring_length) % STDIN_WINDOW;
	first = min_size(size, STDIN_WINDOW - end);
	memcpy(command->ring + end, bytes, first);
	memcpy(command->ring, bytes + first, size - first);
	command->ring_length += size;
	return true;
}

void command_stdin_end(struct port *port)
{
	port->command.stdin_ended = true;
}

void command_resize(struct port *port, uint16_t rows, uint16_t columns)
{
	struct command *command = &port->command;

	/* The input is open as long as the command is: see takes_input(). */
	if (command->state != COMMAND_NONE && command->has_terminal && command->pipes[PIPE_IN] >= 0)
		terminal_resize(command->pipes[PIPE_IN], rows, columns);
}

void command_signal(struct port *port, int signo)
{
	pid_t pid = port->command.pid;

	/* Before the child's setsid there is no such group yet. */
	if (port->command.state == COMMAND_RUNNING && kill(-pid, signo) < 0)
		kill(pid, signo);
}

static void drop_stdin(struct command *command)
{
	command->unacknowledged += (uint32_t)command->ring_length;
	command->ring_length = 0;
	if (!command->has_terminal)
		close_fd(&command->pipes[PIPE_IN]);
}

/* A terminal has no end: what a person would type is typed, once. */
static void end_stdin(struct command *command)
{
	int typed;
	uint8_t byte;

	if (!command->has_terminal) {
		close_fd(&command->pipes[PIPE_IN]);
		return;
	}
	typed = terminal_end_of_input(command->pipes[PIPE_IN]);
	byte = (uint8_t)typed;
	if (typed >= 0 && write_some(command->pipes[PIPE_IN], &byte, 1) < 0 && errno == EAGAIN)
		return; /* again, when there is room */
	command->end_typed = true;
}

static void feed_stdin(struct command *command)
{
	if (!takes_input(command)) {
		drop_stdin(command);
		return;
	}
	while (command->ring_length > 0) {
		size_t size = min_size(command->ring_length, STDIN_WINDOW - command->ring_start);
		ssize_t put = write_some(command->pipes[PIPE_IN], command->ring + command->ring_start, size);
		if (put < 0 && errno == EAGAIN)
			return;
		if (put <= 0) {
			drop_stdin(command); /* the child closed it */
			return;
		}
		command->ring_start = (command->ring_start + (size_t)put) % STDIN_WINDOW;
		command->ring_length -= (size_t)put;
		command->unacknowledged += (uint32_t)put;
	}
	if (command->stdin_ended && !command->end_typed)
		end_stdin(command);
}

static void acknowledge(struct port *port)
{
	struct command *command = &port->command;
	uint8_t bytes[4];

	if (command->unacknowledged == 0)
		return;
	if (command->unacknowledged < ACK_BATCH && command->ring_length > 0)
		return;
	put_u32(bytes, command->unacknowledged);
	if (output_frame(port, REP_STDIN_ACK, bytes, sizeof(bytes)))
		command->unacknowledged = 0;
}

/* Reads one of the two output pipes straight into an empty output buffer. */
static void read_output(struct port *port, int which)
{
	struct command *command = &port->command;
	size_t most = FRAME_MAX;
	ssize_t got;

	if (command->state == COMMAND_ENDING)
		most = min_size(most, command->owed[which]);
	if (command->pipes[which] < 0)
		return;
	got = most > 0 ? read_some(command->pipes[which], port->out + HEADER_SIZE, most) : 0;
	if (got < 0 && errno == EAGAIN && command->state != COMMAND_ENDING)
		return;
	if (got <= 0) {
		close_fd(&command->pipes[which]);
		return;
	}
	if (command->state == COMMAND_ENDING)
		command->owed[which] -= (size_t)got;
	put_header(port->out, which == PIPE_OUT ? REP_STDOUT : REP_STDERR, (size_t)got);
	port->out_start = 0;
	port->out_length = HEADER_SIZE + (size_t)got;
}

static bool output_ended(const struct command *command)
{
	return command->pipes[PIPE_OUT] < 0 && command->pipes[PIPE_ERR] < 0;
}

/* All writers are dead, save one that left its cgroup: what the pipes hold now is the last we read. */
static void end_group(struct port *port)
{
	struct command *command = &port->command;

	for (int which = PIPE_OUT; which <= PIPE_ERR; which++) {
		if (command->pipes[which] >= 0 && stream_is_held(command->pipes[which]))
			command->truncated = true;
	}
	group_kill(port->index);
	for (int which = PIPE_OUT; which <= PIPE_ERR; which++) {
		int held = 0;
		if (command->pipes[which] >= 0 && ioctl(command->pipes[which], FIONREAD, &held) < 0)
			held = 0;
		command->owed[which] = (size_t)held;
	}
	/* FIONREAD does not tell all that a terminal holds. */
	if (command->has_terminal)
		command->owed[PIPE_OUT] = TERMINAL_HELD;
	command->state = COMMAND_ENDING;
}

static void send_exit(struct port *port)
{
	struct command *command = &port->command;
	bool signalled = WIFSIGNALED(command->status);
	uint8_t payload[12];

	put_u32(payload, signalled ? UINT32_MAX : (uint32_t)WEXITSTATUS(command->status));
	put_u32(payload + 4, signalled ? (uint32_t)WTERMSIG(command->status) : 0);
	put_u32(payload + 8, (command->timed_out ? EXIT_TIMED_OUT : 0) |
				     (command->truncated ? EXIT_TRUNCATED : 0));
	if (!output_frame(port, REP_EXIT, payload, sizeof(payload)))
		return; /* again, when the buffer has drained */
	streams_close(command->pipes);
	command->state = COMMAND_NONE;
}

void command_step(struct port *port, int64_t now)
{
	struct command *command = &port->command;

	if (command->state == COMMAND_NONE)
		return;
	if (command->state == COMMAND_RUNNING && command->kill_at && now >= command->kill_at) {
		command->timed_out = true;
		command->kill_at = 0;
		group_kill(port->index);
	}
	feed_stdin(command);
	acknowledge(port);
	for (int i = 0; i < 2 && port->out_length == 0; i++) {
		read_output(port, command->turn ? PIPE_ERR : PIPE_OUT);
		command->turn = !command->turn;
		output_flush(port);
	}
	if (command->state == COMMAND_DRAINING && (output_ended(command) || now >= command->drain_until))
		end_group(port);
	if (command->state == COMMAND_ENDING && output_ended(command))
		send_exit(port);
}

void command_abandon(struct port *port)
{
	struct command *command = &port->command;

	if (command->state == COMMAND_NONE)
		return;
	streams_close(command->pipes);
	command->state = COMMAND_NONE;
	group_kill(port->index);
}

size_t command_polls(const struct port *port, struct pollfd *polls)
{
	const struct command *command = &port->command;
	size_t count = 0;

	if (command->state == COMMAND_NONE)
		return 0;
	if (takes_input(command) &&
	    (command->ring_length > 0 || (command->stdin_ended && !command->end_typed)))
		polls[count++] = (struct pollfd){ .fd = command->pipes[PIPE_IN], .events = POLLOUT };
	for (int which = PIPE_OUT; which <= PIPE_ERR && port->out_length == 0; which++) {
		if (command->pipes[which] >= 0)
			polls[count++] = (struct pollfd){ .fd = command->pipes[which], .events = POLLIN };
	}
	return count;
}

int64_t command_wakeup(const struct port *port)
{
	const struct command *command = &port->command;

	if (command->state == COMMAND_RUNNING && command->kill_at)
		return command->kill_at;
	if (command->state == COMMAND_DRAINING)
		return command->drain_until;
	if (command->state == COMMAND_ENDING && port->out_length == 0)
		return 0;
	return INT64_MAX;
}

static void leader_ended(pid_t pid, int status, int64_t now)
{
	for (size_t i = 0; i < port_count; i++) {
		struct command *command = &ports[i].command;
		if (command->state != COMMAND_RUNNING || command->pid != pid)
			continue;
		command->status = status;
		command->state = COMMAND_DRAINING;
		command->drain_until = now + DRAIN_MS;
	}
}

bool commands_reap(int64_t now)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		leader_ended(pid, status, now);
	return pid == 0;
}
