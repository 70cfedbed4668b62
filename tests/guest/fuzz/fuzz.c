/* The agent's reading path under libFuzzer: real streams, tokens, frames, requests, windows and buffers;
 * the kernel and the commands' processes are world.c's. An input is a script of what clients, commands
 * and the clock do; after each act the agent has its turn, and what must hold is checked. */
#include "world.h"

/* Textually, because what an input left in their static variables has to be undone. */
#include "listen.c"
#include "request.c"

#include "claim.h"
#include "connection.h"
#include "output.h"

#include <stdlib.h>

#define STREAM_PORTS 2 /* the others are places for connections */
#define SIZE_MOST (EXEC_MAX + 1)
#define ACK_STEP 32768
#define ACTS_MAX 64    /* an input may be long, its run may not */

enum act { RAW, TOKEN, FRAME, FILL, CLAIM, EXEC, ROOM, CLOCK, CHILD, HANGUP, CONNECT, CROWD, ACT_COUNT };

struct script {
	const uint8_t *at;
	size_t left;
};

static uint8_t bytes_of(struct script *script)
{
	if (script->left == 0)
		return 0;
	script->left--;
	return *script->at++;
}

static size_t number_of(struct script *script, size_t bytes)
{
	size_t number = 0;

	while (bytes-- > 0)
		number = number << 8 | bytes_of(script);
	return number;
}

/* At most this much of the script, as it is. */
static size_t piece_of(struct script *script, size_t most, const uint8_t **piece)
{
	size_t size = min_size(most, script->left);

	*piece = script->at;
	script->at += size;
	script->left -= size;
	return size;
}

/* Whether a length shall be a wrong one: seldom. */
static bool is_off(struct script *script)
{
	return (bytes_of(script) & 7) == 7;
}

static void send_header(size_t client, uint8_t type, size_t size)
{
	uint8_t header[HEADER_SIZE];

	put_header(header, (enum reply)type, size);
	world_send(client, header, sizeof(header));
}

static void send_token(size_t client, struct script *script)
{
	uint8_t nonce[NONCE_SIZE];
	size_t cut = bytes_of(script);

	world_send(client, world.token, cut < TOKEN_SIZE ? cut : TOKEN_SIZE);
	if (cut < TOKEN_SIZE)
		return;
	memset(nonce, (int)number_of(script, 1), sizeof(nonce));
	world_send(client, nonce, sizeof(nonce));
}

/* A frame with a payload out of the script, mostly of a length that its type has. */
static void send_frame(size_t client, struct script *script)
{
	static const uint8_t lengths[] = {
		[REQ_CLAIM] = CLAIM_FIXED, [REQ_EXEC] = EXEC_FIXED + 4, [REQ_STDIN] = 40,
		[REQ_SIGNAL] = 4,	   [REQ_PING] = 8,		[REQ_SHUTDOWN] = 4,
		[REQ_RESIZE] = 4,
	};
	const uint8_t *piece;
	uint8_t payload[UINT8_MAX] = { 0 };
	uint8_t type = bytes_of(script) % (REQ_RESIZE + 2);
	size_t size = bytes_of(script);
	size_t there;

	if (size & 1)
		size = type < sizeof(lengths) ? lengths[type] : 0;
	there = piece_of(script, size, &piece);
	memcpy(payload, piece, there);
	send_header(client, type, size);
	world_send(client, payload, size);
}

/* Where the bounds are, and now and then any. */
static size_t size_of(struct script *script)
{
	static const size_t sizes[] = { 1,	       FRAME_MAX - 1, FRAME_MAX, FRAME_MAX + 1, EXEC_MAX - 1,
					EXEC_MAX, SIZE_MOST,	 ACK_STEP };
	uint8_t byte = bytes_of(script);

	return byte & 8 ? number_of(script, 3) % (SIZE_MOST + 1) : sizes[byte % COUNT_OF(sizes)];
}

/* A frame of any length that is all one byte: what is larger than a script. */
static void send_fill(size_t client, struct script *script)
{
	static uint8_t filling[SIZE_MOST];
	uint8_t type = bytes_of(script) % (REQ_RESIZE + 2);
	size_t size = size_of(script);
	size_t sent = is_off(script) ? size / 2 : size;

	memset(filling, bytes_of(script), sent);
	send_header(client, type, size);
	world_send(client, filling, sent);
}

static void send_claim(size_t client, struct script *script)
{
	uint8_t payload[CLAIM_FIXED + HOSTNAME_MAX] = { 0 };
	size_t name = bytes_of(script) % (HOSTNAME_MAX + 1);

	/* Few different bytes: tokens that begin within themselves. */
	for (size_t i = 0; i < TOKEN_SIZE; i++)
		payload[i] = bytes_of(script) & 3;
	payload[120] = bytes_of(script) & 3;
	payload[121] = (uint8_t)(name + (is_off(script) ? 1 : 0));
	memset(payload + CLAIM_FIXED, 'a', name);
	send_header(client, REQ_CLAIM, CLAIM_FIXED + name);
	world_send(client, payload, CLAIM_FIXED + name);
}

static void send_exec(size_t client, struct script *script)
{
	uint8_t payload[EXEC_FIXED + LIMITS_MAX * LIMIT_SIZE + 256] = { 0 };
	const uint8_t *strings;
	size_t limits = bytes_of(script) % (LIMITS_MAX + 1);
	size_t size = EXEC_FIXED + limits * LIMIT_SIZE;
	size_t more;

	payload[0] = bytes_of(script) & 7;
	put_u32(payload + 4, bytes_of(script) * 16);
	put_u16(payload + 8, bytes_of(script) % 3);
	put_u16(payload + 10, bytes_of(script) % 2);
	put_u32(payload + 16, (uint32_t)limits);
	for (size_t i = 0; i < limits; i++)
		payload[EXEC_FIXED + i * LIMIT_SIZE] = bytes_of(script);
	more = piece_of(script, bytes_of(script), &strings);
	if (more == 0) {
		strings = (const uint8_t *)"\0\0x";
		more = 4;
		put_u16(payload + 8, 1);
		put_u16(payload + 10, 0);
	}
	memcpy(payload + size, strings, more);
	size += more;
	if (is_off(script))
		size -= min_size(size - EXEC_FIXED, bytes_of(script));
	send_header(client, REQ_EXEC, size);
	world_send(client, payload, size);
}

/* Many connect, with or without the token. */
static void send_crowd(struct script *script)
{
	uint8_t nonce[NONCE_SIZE] = { 0 };
	size_t first = bytes_of(script) % CLIENTS;
	size_t last = bytes_of(script) % (CLIENTS + 1);
	bool knows = bytes_of(script) & 1;

	for (size_t client = first; client < last; client++) {
		world_connect(client);
		world_send(client, world.token, knows ? TOKEN_SIZE : 1);
		world_send(client, nonce, knows ? NONCE_SIZE : 1);
	}
}

/* Mostly one of few, so that acts are of the same client. */
static size_t client_of(uint8_t byte)
{
	return byte < 192 ? byte % 4 : byte % CLIENTS;
}

static size_t piece_size(uint8_t byte)
{
	return byte < 128 ? byte + 1 : PAGE;
}

static void act_of(struct script *script)
{
	const uint8_t *piece;
	size_t size;
	enum act act = bytes_of(script) % ACT_COUNT;
	size_t client = client_of(bytes_of(script));

	switch (act) {
	case RAW:
		size = piece_of(script, bytes_of(script), &piece);
		world_send(client, piece, size);
		break;
	case TOKEN:
		send_token(client, script);
		break;
	case FRAME:
		send_frame(client, script);
		break;
	case FILL:
		send_fill(client, script);
		break;
	case CLAIM:
		send_claim(client, script);
		break;
	case EXEC:
		send_exec(client, script);
		break;
	case ROOM:
		world_room(client, number_of(script, 3), piece_size(bytes_of(script)));
		break;
	case CLOCK:
		world.now += (int64_t)number_of(script, 2);
		break;
	case CHILD:
		world_child(bytes_of(script), number_of(script, 3));
		break;
	case HANGUP:
		world_hang_up(client, bytes_of(script));
		break;
	case CONNECT:
		world_connect(client);
		break;
	case CROWD:
		send_crowd(script);
		break;
	case ACT_COUNT:
		break;
	}
}

/* As serve.c does it, where the kernel tells what is ready. */
static void turn(void)
{
	struct pollfd polls[LISTEN_POLLS];

	listen_polls(polls, world.now);
	for (size_t i = 0; i < LISTEN_POLLS; i++)
		polls[i].revents = polls[i].fd < 0 ? 0 : polls[i].events;
	world_wake();
	listen_step(polls, world.now);
	commands_reap(world.now);
	for (size_t i = 0; i < port_count; i++) {
		struct port *port = &ports[i];
		if (port->may_read)
			port_read(port, world.now);
		port_check_hangup(port, world.now);
		output_flush(port);
		command_step(port, world.now);
		output_flush(port);
		connection_step(port, world.now);
		must(port_wakeup(port) > 0 && command_wakeup(port) >= 0 && connection_wakeup(port) > 0);
	}
	must(listen_wakeup(world.now) >= 0 && request_shutdown_deadline() >= 0);
}

static void check_port(const struct port *port)
{
	const struct command *command = &port->command;
	struct pollfd polls[PIPE_COUNT];

	must(port->in_start <= port->in_scanned && port->in_scanned <= port->in_end);
	must(port->in_end <= IN_SIZE && port->matched < TOKEN_SIZE);
	must(port->out_start + port->out_length <= OUT_SIZE);
	must(command->ring_start < STDIN_WINDOW);
	must(command->ring_length + command->unacknowledged <= STDIN_WINDOW);
	must(command_polls(port, polls) <= PIPE_COUNT);
	must(port->single == (port->index >= STREAM_PORTS) && (!port->single || port->matched == 0));
	must(port->fd >= 0 || (port->state == SESSION_NONE && port->out_length == 0));
	must(command->state == COMMAND_NONE || port->state == SESSION_OPEN);
}

/* Fields, not buffers: what is in those from before must not matter. */
static void start_over(void)
{
	static const uint8_t token[TOKEN_SIZE] = "token of 32 bytes.token of 32 by";

	claimed = false;
	shutdown_deadline = kernel_length = 0;
	listening_fd = -1;
	paused_until = 0;
	port_count = 0;
	for (size_t i = 0; i < PORT_COUNT; i++) {
		memset(&ports[i], 0, offsetof(struct port, command));
		memset(&ports[i].command, 0, offsetof(struct command, ring));
	}
	memset(pending, 0, sizeof(pending));
	world_start();
	for (size_t i = 0; i < STREAM_PORTS; i++)
		port_add(world_port(i));
	connections_prepare();
	must(listen_use(world_listener()) == 0);
	token_set(token);
	request_describe_kernel();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script script = { data, size };

	start_over();
	if (bytes_of(&script) & 7)
		request_claim_at_start(world.token);
	for (size_t acts = 0; script.left > 0 && acts < ACTS_MAX; acts++) {
		act_of(&script);
		for (size_t turns = 0; turns < 4; turns++) {
			turn();
			for (size_t i = 0; i < port_count; i++)
				check_port(&ports[i]);
		}
	}
	for (size_t i = 0; i < port_count; i++)
		port_reset(&ports[i]);
	world_end();
	return 0;
}
