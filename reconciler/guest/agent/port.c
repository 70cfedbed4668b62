#include "port.h"

#include "command.h"
#include "output.h"
#include "request.h"
#include "sys.h"

#include <errno.h>
#include <string.h>

/* A client that connects within milliseconds of another's end shows as a hang-up of the old one after
 * the new one's first bytes; only one that lasts is a client that is gone. */
#define HANGUP_MS 200

/* A frame that ends with this many bytes of the token waits for the next bytes: they may be the token,
 * cut by a read, and then the frame is none. A frame of an honest client ends so once in 2^64. */
#define SUSPICIOUS 8

/* What one port may read before the others have their turn. */
#define READ_MOST 65536

struct port ports[PORT_COUNT];
size_t port_count;

void port_add(int fd)
{
	struct port *port = &ports[port_count];

	port->index = port_count++;
	port->fd = fd;
	port->may_read = port->may_write = fd >= 0;
	for (int i = 0; i < PIPE_COUNT; i++)
		port->command.pipes[i] = -1;
}

void port_reset(struct port *port)
{
	command_abandon(port);
	port->state = SESSION_NONE;
	port->in_start = port->in_scanned = port->in_end = 0;
	port->out_start = port->out_length = 0;
}

void port_fail(struct port *port, int error, const char *text)
{
	uint8_t payload[256];
	size_t length = min_size(strlen(text), sizeof(payload) - 4);

	command_abandon(port);
	put_u32(payload, (uint32_t)error);
	memcpy(payload + 4, text, length);
	output_frame(port, REP_ERROR, payload, 4 + length);
	port->state = SESSION_NONE;
}

/* Everything before the last token in the buffer belongs to a session that is over. */
static void scan(struct port *port)
{
	size_t past;

	while (!port->single && (past = token_scan(&port->matched, port->in + port->in_scanned,
						   port->in_end - port->in_scanned))) {
		command_abandon(port);
		port->in_scanned += past;
		port->in_start = port->in_scanned;
		port->out_start = port->out_length = 0;
		port->state = SESSION_NONCE;
	}
	port->in_scanned = port->in_end;
}

void port_begin(struct port *port, const uint8_t nonce[NONCE_SIZE])
{
	port->state = SESSION_OPEN;
	output_bytes(port, nonce, NONCE_SIZE);
	request_greet(port);
}

/* Starts the session once its nonce is there; false: not yet. */
static bool begin(struct port *port, int64_t now)
{
	if (port->in_end - port->in_start < NONCE_SIZE)
		return false;
	/* A hang-up from before is the old client's, or this one's connection is not announced yet. */
	if (port->hung_up_at)
		port->hung_up_at = now;
	port_begin(port, port->in + port->in_start);
	port->in_start += NONCE_SIZE;
	return true;
}

/* Acts on the next frame; false: it is not complete, or the session ended. */
static bool next_frame(struct port *port, int64_t now)
{
	const uint8_t *frame = port->in + port->in_start;
	size_t there = port->in_end - port->in_start;
	size_t length;
	int error;

	if (there < HEADER_SIZE)
		return false;
	error = check_header(frame, &length);
	if (error) {
		port_fail(port, error, "bad frame");
		return false;
	}
	if (there < HEADER_SIZE + length)
		return false;
	if (port->matched >= SUSPICIOUS && HEADER_SIZE + length > there - port->matched)
		return false;
	port->in_start += HEADER_SIZE + length;
	request_handle(port, frame[0], frame + HEADER_SIZE, length, now);
	return true;
}

static void act(struct port *port, int64_t now)
{
	bool more = true;

	while (more) {
		/* Not only once: a CLAIM changes what is looked for in the bytes behind it. */
		scan(port);
		if (port->state == SESSION_OPEN)
			more = next_frame(port, now);
		else if (port->state == SESSION_NONCE)
			more = begin(port, now);
		else
			more = false;
	}
	if (port->state == SESSION_NONE)
		port->in_start = port->in_scanned = port->in_end;
}

static void compact(struct port *port)
{
	memmove(port->in, port->in + port->in_start, port->in_end - port->in_start);
	port->in_end -= port->in_start;
	port->in_scanned -= port->in_start;
	port->in_start = 0;
}

void port_read(struct port *port, int64_t now)
{
	size_t before;

	compact(port);
	before = port->in_end;
	/* A virtio port gives a page a call, however much there is. */
	while (port->may_read && port->in_end - before < READ_MOST && port->in_end < IN_SIZE) {
		ssize_t got = read_some(port->fd, port->in + port->in_end, IN_SIZE - port->in_end);
		if (got > 0) {
			port->in_end += (size_t)got;
			continue;
		}
		port->may_read = false;
		port->gone = got == 0 || errno != EAGAIN;
		if (got == 0)
			port_note_hangup(port, true, now);
	}
	act(port, now);
}

void port_note_hangup(struct port *port, bool hung_up, int64_t now)
{
	if (!hung_up)
		port->hung_up_at = 0;
	else if (port->hung_up_at == 0)
		port->hung_up_at = now;
}

void port_check_hangup(struct port *port, int64_t now)
{
	struct pollfd poll_fd = { .fd = port->fd };

	if (now < port_wakeup(port))
		return;
	port->hung_up_at = 0;
	if (poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & POLLHUP)
		port_reset(port);
}

int64_t port_wakeup(const struct port *port)
{
	if (port->state != SESSION_OPEN || port->hung_up_at == 0)
		return INT64_MAX;
	return port->hung_up_at + HANGUP_MS;
}
