#include "serve.h"

#include "command.h"
#include "connection.h"
#include "listen.h"
#include "output.h"
#include "power.h"
#include "request.h"
#include "sys.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

/* How long the last answers may take to leave once nothing runs any more. */
#define FLUSH_MS 500
#define POLL_COUNT (2 + LISTEN_POLLS + PORT_COUNT * PIPE_COUNT)

static enum { ASKED, TERM_SENT, KILL_SENT } stage; /* of a shutdown */
static int child_fd = -1;
static int port_events_fd = -1;

void serve_prepare(void)
{
	sigset_t signals;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	child_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	port_events_fd = epoll_create1(EPOLL_CLOEXEC);
	if (child_fd < 0 || port_events_fd < 0)
		power_fail("cannot make event files");
}

/* Edge triggered, because a virtio port without a client reports POLLHUP for ever. */
bool serve_watch(const struct port *port)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u64 = port->index };

	return epoll_ctl(port_events_fd, EPOLL_CTL_ADD, port->fd, &event) == 0;
}

static void watch_ports(void)
{
	for (size_t i = 0; i < port_count; i++) {
		if (ports[i].fd >= 0 && !serve_watch(&ports[i]))
			power_fail("cannot watch a port");
	}
}

static void take_port_events(int64_t now)
{
	struct epoll_event events[PORT_COUNT];
	int count = epoll_wait(port_events_fd, events, PORT_COUNT, 0);

	for (int i = 0; i < count; i++) {
		struct port *port = &ports[events[i].data.u64];
		if (port->fd < 0)
			continue; /* a child that has just been forked keeps the closed connection */
		port->may_read = port->may_write = true;
		port_note_hangup(port, events[i].events & EPOLLHUP, now);
	}
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static int64_t shutdown_wakeup(void)
{
	int64_t deadline = request_shutdown_deadline();

	if (deadline == 0)
		return INT64_MAX;
	return stage == KILL_SENT ? deadline + FLUSH_MS : deadline;
}

static int64_t next_wakeup(int64_t now)
{
	int64_t at = earlier(shutdown_wakeup(), listen_wakeup(now));

	for (size_t i = 0; i < port_count; i++) {
		if (ports[i].may_read)
			return 0;
		at = earlier(at, earlier(command_wakeup(&ports[i]), port_wakeup(&ports[i])));
		at = earlier(at, connection_wakeup(&ports[i]));
	}
	return at;
}

static void wait_for_events(void)
{
	struct pollfd polls[POLL_COUNT] = {
		{ .fd = port_events_fd, .events = POLLIN },
		{ .fd = child_fd, .events = POLLIN },
	};
	struct signalfd_siginfo info;
	int64_t now = now_ms();
	int64_t at = next_wakeup(now);
	struct pollfd *listening = polls + 2;
	size_t count = 2 + LISTEN_POLLS;
	int timeout = -1;

	if (at != INT64_MAX)
		timeout = (int)earlier(at > now ? at - now : 0, INT_MAX);
	listen_polls(listening, now);
	for (size_t i = 0; i < port_count; i++)
		count += command_polls(&ports[i], polls + count);
	if (poll(polls, count, timeout) < 0)
		return;
	now = now_ms();
	if (polls[0].revents)
		take_port_events(now);
	listen_step(listening, now);
	if (!polls[1].revents)
		return;
	while (read_some(child_fd, &info, sizeof(info)) > 0)
		continue;
	commands_reap(now);
}

static void step_ports(int64_t now)
{
	for (size_t i = 0; i < port_count; i++) {
		struct port *port = &ports[i];
		if (port->may_read)
			port_read(port, now);
		port_check_hangup(port, now);
		output_flush(port);
		command_step(port, now);
		output_flush(port);
		connection_step(port, now);
	}
}

static bool all_said(void)
{
	for (size_t i = 0; i < port_count; i++) {
		if (ports[i].command.state != COMMAND_NONE || ports[i].out_length > 0)
			return false;
	}
	return true;
}

/* TERM to all, KILL at the deadline, off when nothing is left. */
static void step_shutdown(int64_t now)
{
	int64_t deadline = request_shutdown_deadline();
	bool children = commands_reap(now);

	if (stage == ASKED) {
		stage = TERM_SENT;
		power_signal_all(SIGTERM);
	}
	if (stage == TERM_SENT && now >= deadline) {
		stage = KILL_SENT;
		power_signal_all(SIGKILL);
	}
	if ((!children && all_said()) || now >= deadline + FLUSH_MS) {
		power_unmount();
		request_tell_down();
		power_off();
	}
}

_Noreturn void serve(void)
{
	watch_ports();
	for (;;) {
		wait_for_events();
		step_ports(now_ms());
		if (request_shutdown_deadline())
			step_shutdown(now_ms());
		if (port_count == 1 && ports[0].gone) {
			port_reset(&ports[0]);
			power_off();
		}
	}
}
