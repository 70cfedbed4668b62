#include "world.h"

#include "connection.h"
#include "group.h"
#include "own.h"
#include "request.h"
#include "serve.h"
#include "streams.h"
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Descriptors of this world; what is below is the process's own. */
#define CLIENT_FD 100000
#define PIPE_FD 200000
#define LISTENER_FD 300000
#define PID_FIRST 5000000
/* More than a client may have in flight, and a bound on what one input costs. */
#define QUEUE_MAX (1 << 20)

struct client {
	bool connected, waiting; /* waiting: not accepted yet */
	bool ended, broken;
	size_t room, piece; /* a piece below a page comes alone, what is behind it later */
	bool later;
	uint8_t *queue;
	size_t start, end;
};

struct child {
	bool alive, ended, held;
	int status;
	bool open[PIPE_COUNT];	  /* the command's ends */
	size_t amount[PIPE_COUNT]; /* of room in stdin, of bytes in the others */
};

struct world world;
static struct client clients[CLIENTS];
static struct child children[PORT_COUNT];
static size_t starting; /* the port whose EXEC is being handled */

#define WRAP(result, name, ...)             \
	result __real_##name(__VA_ARGS__);  \
	result __wrap_##name(__VA_ARGS__);  \
	result __wrap_##name(__VA_ARGS__)

void world_start(void)
{
	world.now = 1000;
	for (size_t i = 0; i < CLIENTS; i++) {
		uint8_t *queue = clients[i].queue ? clients[i].queue : malloc(QUEUE_MAX);
		clients[i] = (struct client){ .queue = queue, .room = 1 << 20, .piece = PAGE };
		clients[i].connected = i < 2;
	}
	memset(children, 0, sizeof(children));
}

void world_end(void)
{
	for (size_t i = 0; i < PORT_COUNT; i++)
		must(!children[i].alive);
}

int world_port(size_t client)
{
	return CLIENT_FD + (int)client;
}

int world_listener(void)
{
	return LISTENER_FD;
}

void world_send(size_t client, const uint8_t *bytes, size_t size)
{
	struct client *one = &clients[client];

	size = min_size(size, QUEUE_MAX - one->end);
	if (!one->connected || one->ended)
		return;
	memcpy(one->queue + one->end, bytes, size);
	one->end += size;
}

void world_room(size_t client, size_t room, size_t piece)
{
	clients[client].room = room;
	clients[client].piece = piece;
}

void world_hang_up(size_t client, uint8_t how)
{
	clients[client].ended = how & 1;
	clients[client].broken = how & 2;
}

void world_connect(size_t client)
{
	struct client *one = &clients[client];

	if (client < 2 || one->connected)
		return;
	*one = (struct client){ .queue = one->queue, .room = 1 << 20, .piece = PAGE };
	one->connected = one->waiting = true;
}

static void child_end(struct child *child, int status)
{
	if (!child->alive)
		return;
	child->alive = false;
	child->ended = true;
	child->status = status;
}

static void child_close(struct child *child)
{
	memset(child->open, 0, sizeof(child->open));
}

void world_child(uint8_t what, size_t amount)
{
	struct child *child = &children[what >> 4];
	size_t which = what & 3;

	if (what & 8) {
		child_end(child, what & 1 ? SIGTERM : (int)(amount & 0xff00));
		/* Its own child may hold its output. */
		if (what & 2)
			child_close(child);
	} else if (which < PIPE_COUNT && what & 4) {
		child->open[which] = false;
	} else if (which < PIPE_COUNT && child->open[which]) {
		child->amount[which] += amount % 200000;
	}
}

void world_wake(void)
{
	for (size_t i = 0; i < port_count; i++) {
		struct client *client = &clients[(size_t)(ports[i].fd - CLIENT_FD) % CLIENTS];
		if (ports[i].fd < 0)
			continue;
		client->later = false;
		ports[i].may_read = ports[i].may_write = true;
		port_note_hangup(&ports[i], client->ended, world.now);
	}
}

static struct client *client_of(int fd)
{
	return fd >= CLIENT_FD && fd < CLIENT_FD + CLIENTS ? &clients[fd - CLIENT_FD] : NULL;
}

static bool is_pipe(int fd)
{
	return fd >= PIPE_FD && fd < PIPE_FD + PORT_COUNT * PIPE_COUNT;
}

static struct child *child_of(int fd, size_t *which)
{
	*which = (size_t)(fd - PIPE_FD) % PIPE_COUNT;
	return &children[(size_t)(fd - PIPE_FD) / PIPE_COUNT];
}

static ssize_t fail(int error)
{
	errno = error;
	return -1;
}

/* Whether a buffer lies in one of a port's own: within a structure ASan sees no overrun. */
static bool within(const uint8_t *buffer, size_t size, const uint8_t *whole, size_t most)
{
	return buffer >= whole && size <= most && buffer - whole <= (ptrdiff_t)(most - size);
}

static bool is_in_a_port(const void *buffer, size_t size)
{
	for (size_t i = 0; i < port_count; i++) {
		if (within(buffer, size, ports[i].in, IN_SIZE) || within(buffer, size, ports[i].out, OUT_SIZE) ||
		    within(buffer, size, ports[i].command.ring, STDIN_WINDOW))
			return true;
	}
	return false;
}

WRAP(ssize_t, read, int fd, void *buffer, size_t size)
{
	struct client *client = client_of(fd);
	size_t which;

	if (client) {
		size_t got = min_size(min_size(size, client->piece), client->end - client->start);
		must(client->connected && size > 0);
		must(size <= TOKEN_SIZE + NONCE_SIZE || is_in_a_port(buffer, size));
		if (client->later)
			return fail(EAGAIN);
		client->later = got > 0 && client->piece < PAGE;
		memcpy(buffer, client->queue + client->start, got);
		client->start += got;
		if (got > 0)
			return (ssize_t)got;
		return client->broken ? fail(ECONNRESET) : client->ended ? 0 : fail(EAGAIN);
	}
	if (is_pipe(fd)) {
		struct child *child = child_of(fd, &which);
		size_t got = min_size(size, child->amount[which]);
		must(which != PIPE_IN && is_in_a_port(buffer, size));
		memset(buffer, 'o', got);
		child->amount[which] -= got;
		if (got > 0)
			return (ssize_t)got;
		return child->open[which] ? fail(EAGAIN) : 0;
	}
	return __real_read(fd, buffer, size);
}

WRAP(ssize_t, write, int fd, const void *buffer, size_t size)
{
	struct client *client = client_of(fd);
	size_t which;

	if (client) {
		size_t put = min_size(size, client->room);
		must(client->connected && size > 0);
		client->room -= put;
		if (client->broken)
			return fail(EPIPE);
		return put > 0 ? (ssize_t)put : fail(EAGAIN);
	}
	if (is_pipe(fd)) {
		struct child *child = child_of(fd, &which);
		size_t put = min_size(size, child->amount[which]);
		must(which == PIPE_IN && (size == 1 || is_in_a_port(buffer, size)));
		if (!child->open[which])
			return fail(EPIPE);
		child->amount[which] -= put;
		return put > 0 ? (ssize_t)put : fail(EAGAIN);
	}
	return __real_write(fd, buffer, size);
}

WRAP(int, close, int fd)
{
	struct client *client = client_of(fd);

	if (client) {
		must(client->connected && !client->waiting && client - clients >= 2);
		client->connected = false;
		return 0;
	}
	return is_pipe(fd) ? 0 : __real_close(fd);
}

/* FIONREAD and what hangs up are all that the agent asks of its pipes. */
int __wrap_ioctl(int fd, unsigned long request, int *held);

int __wrap_ioctl(int fd, unsigned long request, int *held)
{
	size_t which;

	must(is_pipe(fd) && request == FIONREAD);
	*held = (int)child_of(fd, &which)->amount[which];
	return 0;
}

int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout);

int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout)
{
	must(count == 1 && timeout == 0 && client_of(polls->fd));
	polls->revents = client_of(polls->fd)->ended ? POLLHUP : 0;
	return polls->revents != 0;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags)
{
	must(fd == LISTENER_FD && !address && !size && flags == (SOCK_CLOEXEC | SOCK_NONBLOCK));
	for (size_t i = 2; i < CLIENTS; i++) {
		if (clients[i].waiting) {
			clients[i].waiting = false;
			return CLIENT_FD + (int)i;
		}
	}
	return (int)fail(EAGAIN);
}

int __wrap_shutdown(int fd, int how);

int __wrap_shutdown(int fd, int how)
{
	must(client_of(fd) && how == SHUT_WR);
	return 0;
}

int __wrap_listen(int fd, int queue);

int __wrap_listen(int fd, int queue)
{
	must(fd == LISTENER_FD && queue > 0);
	return 0;
}

int __wrap_getsockopt(int fd, int level, int name, int *value, socklen_t *size);

int __wrap_getsockopt(int fd, int level, int name, int *value, socklen_t *size)
{
	must(fd == LISTENER_FD && level == SOL_SOCKET && name == SO_ACCEPTCONN && *size == sizeof(*value));
	*value = 1;
	return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
	must(fd == LISTENER_FD && level >= 0 && name >= 0 && value && size == sizeof(int));
	return 0;
}

bool serve_watch(const struct port *port)
{
	return port->index < PORT_COUNT;
}

/* The commands' processes. */

int streams_open(const struct exec_request *request, int ours[PIPE_COUNT], int theirs[PIPE_COUNT])
{
	must(request->argc > 0 && theirs[0] == -1);
	for (size_t i = 0; i < PORT_COUNT; i++) {
		if (ours == ports[i].command.pipes)
			starting = i;
	}
	for (int which = 0; which < PIPE_COUNT; which++)
		ours[which] = PIPE_FD + (int)starting * PIPE_COUNT + which;
	if (request->flags & EXEC_TERMINAL)
		ours[PIPE_ERR] = -1;
	return 0;
}

void streams_close(int pipes[PIPE_COUNT])
{
	for (int i = 0; i < PIPE_COUNT; i++)
		close_fd(&pipes[i]);
}

bool stream_is_held(int ours)
{
	size_t which;

	return child_of(ours, &which)->open[which];
}

pid_t __wrap_fork(void);

pid_t __wrap_fork(void)
{
	struct child *child = &children[starting];

	must(!child->alive && !child->ended);
	*child = (struct child){ .alive = true, .open = { true, true, true }, .amount = { 65536 } };
	return PID_FIRST + (pid_t)starting;
}

pid_t __wrap_waitpid(pid_t pid, int *status, int flags);

pid_t __wrap_waitpid(pid_t pid, int *status, int flags)
{
	bool left = false;

	must(pid == -1 && flags == WNOHANG);
	for (size_t i = 0; i < PORT_COUNT; i++) {
		left |= children[i].alive;
		if (!children[i].ended)
			continue;
		children[i].ended = false;
		*status = children[i].status;
		return PID_FIRST + (pid_t)i;
	}
	return left ? 0 : (pid_t)fail(ECHILD);
}

int __wrap_kill(pid_t pid, int signo);

int __wrap_kill(pid_t pid, int signo)
{
	size_t index = (size_t)((pid < 0 ? -pid : pid) - PID_FIRST);

	must(index < PORT_COUNT && signo >= 1 && signo <= 64);
	if (signo == SIGKILL)
		child_end(&children[index], SIGKILL);
	return 0;
}

void group_kill(size_t port)
{
	child_end(&children[port], SIGKILL);
	child_close(&children[port]);
}

bool groups_shared(void)
{
	return false;
}

int group_join(size_t port)
{
	must(port == PORT_COUNT);
	return -1;
}

void own_run(char *const arguments[])
{
	must(!arguments);
	abort();
}

int terminal_take(int theirs)
{
	must(theirs == -1);
	return -1;
}

void terminal_resize(int ours, uint16_t rows, uint16_t columns)
{
	must(is_pipe(ours) && (rows | columns) >= 0);
}

int terminal_end_of_input(int ours)
{
	must(is_pipe(ours));
	return 4;
}

/* What is read of a peer lies in a piece of memory of its own, so that one byte too far is seen. */

static uint8_t *copy_of(const uint8_t *bytes, size_t size)
{
	uint8_t *copy = malloc(size);

	must(copy || size == 0);
	if (size > 0)
		memcpy(copy, bytes, size);
	return copy;
}

void __real_request_handle(struct port *port, uint8_t type, const uint8_t *payload, size_t size,
			   int64_t now);
void __wrap_request_handle(struct port *port, uint8_t type, const uint8_t *payload, size_t size,
			   int64_t now);

void __wrap_request_handle(struct port *port, uint8_t type, const uint8_t *payload, size_t size,
			   int64_t now)
{
	uint8_t *copy;

	must(payload + size <= port->in + port->in_end);
	copy = copy_of(payload, size);
	__real_request_handle(port, type, copy, size, now);
	free(copy);
}

WRAP(int, check_header, const uint8_t *header, size_t *length)
{
	uint8_t *copy = copy_of(header, HEADER_SIZE);
	int error = __real_check_header(copy, length);

	free(copy);
	must(error || *length <= EXEC_MAX);
	return error;
}

WRAP(void, token_set, const uint8_t token[TOKEN_SIZE])
{
	memcpy(world.token, token, TOKEN_SIZE);
	__real_token_set(token);
}

/* What token_scan() is to find, the slow way: the end of the first token in what was matched and what
 * comes now, else how much of a token that ends with. */
static size_t scan_slowly(uint8_t *matched, const uint8_t *data, size_t size)
{
	size_t before = *matched;
	uint8_t *all = malloc(before + size + 1);
	const uint8_t *found;
	size_t past = 0;

	memcpy(all, world.token, before);
	memcpy(all + before, data, size);
	found = memmem(all, before + size, world.token, TOKEN_SIZE);
	*matched = 0;
	if (found)
		past = (size_t)(found - all) + TOKEN_SIZE - before;
	for (size_t length = min_size(TOKEN_SIZE - 1, before + size); !found && length > 0; length--) {
		if (memcmp(all + before + size - length, world.token, length) == 0) {
			*matched = (uint8_t)length;
			break;
		}
	}
	free(all);
	return past;
}

WRAP(size_t, token_scan, uint8_t *matched, const uint8_t *data, size_t size)
{
	uint8_t *copy = copy_of(data, size);
	uint8_t expected = *matched;
	size_t slow = scan_slowly(&expected, copy, size);
	size_t past = __real_token_scan(matched, copy, size);

	must(past == slow && *matched == expected);
	free(copy);
	return past;
}
