#include "request.h"

#include "claim.h"
#include "command.h"
#include "limits.h"
#include "output.h"
#include "sys.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/utsname.h>

#ifndef AGENT_VERSION
#define AGENT_VERSION "unversioned"
#endif
#define SHUTDOWN_MAX_MS 600000
#define SIGNALS 64

static bool claimed;
static int64_t shutdown_deadline;
static struct port *shutdown_port; /* that asked for it last */

/* The strings of READY, each with its NUL. */
static char kernel_text[512];
static size_t kernel_length;

static void describe(const char *text)
{
	size_t size = min_size(strlen(text), sizeof(kernel_text) - kernel_length - 1) + 1;

	memcpy(kernel_text + kernel_length, text, size - 1);
	kernel_length += size;
}

void request_describe_kernel(void)
{
	struct utsname name;
	char boot_id[64];

	uname(&name);
	read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
	describe(AGENT_VERSION);
	describe(name.release);
	describe(name.version);
	describe(name.machine);
	describe(boot_id);
}

void request_claim_at_start(const uint8_t *token)
{
	token_set(token);
	claimed = true;
}

int64_t request_shutdown_deadline(void)
{
	return shutdown_deadline;
}

void request_greet(struct port *port)
{
	uint8_t payload[4 + sizeof(kernel_text)];

	put_u16(payload, PROTOCOL_VERSION);
	payload[2] = claimed;
	payload[3] = 0;
	memcpy(payload + 4, kernel_text, kernel_length);
	output_frame(port, REP_READY, payload, 4 + kernel_length);
}

static void reply(struct port *port, enum reply type, const uint8_t *payload, size_t size)
{
	if (!output_frame(port, type, payload, size))
		port_fail(port, ENOBUFS, "too many requests without reading the answers");
}

/* Sessions of other ports proved that they know the old token, not the new one. */
static void change_token(struct port *port, const uint8_t *token)
{
	token_set(token);
	claimed = true;
	for (size_t i = 0; i < port_count; i++) {
		ports[i].matched = 0;
		if (&ports[i] != port)
			port_reset(&ports[i]);
	}
	port->in_scanned = port->in_start;
}

static void handle_claim(struct port *port, const uint8_t *payload, size_t size)
{
	struct claim claim;
	int error = claim_read(payload, size, &claim);
	const char *failed;

	if (error) {
		port_fail(port, error, "bad CLAIM");
		return;
	}
	if (port->command.state != COMMAND_NONE || shutdown_deadline) {
		port_fail(port, EBUSY, "CLAIM while a command runs or at shutdown");
		return;
	}
	failed = claim_apply(&claim);
	if (failed) {
		port_fail(port, errno, failed);
		return;
	}
	change_token(port, claim.token);
	reply(port, REP_CLAIMED, NULL, 0);
}

static bool another_runs(const struct port *port)
{
	for (size_t i = 0; i < port_count; i++) {
		if (&ports[i] != port && ports[i].command.state != COMMAND_NONE)
			return true;
	}
	return false;
}

static void handle_exec(struct port *port, const uint8_t *payload, size_t size, int64_t now)
{
	struct exec_request request;
	int error;

	if (!exec_parse(payload, size, &request)) {
		port_fail(port, EBADMSG, "bad EXEC");
	} else if (request.flags & ~(uint32_t)EXEC_FLAGS) {
		port_fail(port, ENOTSUP, "EXEC with flags this agent does not know");
	} else if (request.flags & EXEC_OWN && request.flags != EXEC_OWN) {
		port_fail(port, EINVAL, "EXEC of the agent's own program with other flags");
	} else if (!limits_valid(request.limits, request.limit_count)) {
		port_fail(port, EINVAL, "EXEC with a limit that the kernel does not have");
	} else if (!claimed) {
		port_fail(port, EPERM, "EXEC before CLAIM");
	} else if (port->command.state != COMMAND_NONE) {
		port_fail(port, EBUSY, "EXEC while a command runs");
	} else if (groups_shared() && another_runs(port)) {
		port_fail(port, EBUSY, "EXEC while another session's command runs: there is no cgroup");
	} else if (shutdown_deadline) {
		port_fail(port, ESHUTDOWN, "EXEC at shutdown");
	} else {
		error = command_start(port, &request, now);
		if (error)
			port_fail(port, error, "cannot start a process");
	}
}

static void handle_signal(struct port *port, uint32_t signo)
{
	if (signo < 1 || signo > SIGNALS)
		port_fail(port, EINVAL, "no such signal");
	else
		command_signal(port, (int)signo);
}

static void handle_shutdown(struct port *port, uint32_t deadline_ms, int64_t now)
{
	reply(port, REP_SHUTTING_DOWN, NULL, 0);
	shutdown_port = port;
	shutdown_deadline = now + (int64_t)min_size(deadline_ms, SHUTDOWN_MAX_MS);
}

void request_tell_down(void)
{
	if (shutdown_port->state != SESSION_OPEN)
		return;
	reply(shutdown_port, REP_DOWN, NULL, 0);
	output_flush(shutdown_port);
}

void request_handle(struct port *port, uint8_t type, const uint8_t *payload, size_t size, int64_t now)
{
	switch ((enum request)type) {
	case REQ_CLAIM:
		handle_claim(port, payload, size);
		break;
	case REQ_EXEC:
		handle_exec(port, payload, size, now);
		break;
	case REQ_STDIN:
		if (!command_stdin(port, payload, size))
			port_fail(port, EMSGSIZE, "STDIN beyond the window or behind its end");
		break;
	case REQ_STDIN_EOF:
		command_stdin_end(port);
		break;
	case REQ_SIGNAL:
		handle_signal(port, get_u32(payload));
		break;
	case REQ_PING:
		reply(port, REP_PONG, payload, size);
		break;
	case REQ_SHUTDOWN:
		handle_shutdown(port, get_u32(payload), now);
		break;
	case REQ_RESIZE:
		command_resize(port, get_u16(payload), get_u16(payload + 2));
		break;
	}
}
