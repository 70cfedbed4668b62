#include "listen.h"

#include "connection.h"
#include "sys.h"
#include "token.h"
#include "wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* From accept until token and nonce are there, all together. */
#define PROVE_MS 3000

/* Of these, what nobody takes from it: when all places are taken and somebody waits, the oldest
 * connection gives way that has had this long. So sixteen who only hold on keep out nobody. */
#define GRACE_MS 100

/* A client behind a full queue waits QUEUE / PENDING_MAX * GRACE_MS. */
#define QUEUE 64

/* How long to leave a socket alone that has a client and no descriptor or memory for it. */
#define PAUSE_MS 100

struct pending {
	int fd; /* -1: a free place */
	int64_t since;
	uint8_t got;
	uint8_t bytes[TOKEN_SIZE + NONCE_SIZE];
};

static struct pending pending[PENDING_MAX];
static int listening_fd = -1;
static int64_t paused_until;

int listen_use(int fd)
{
	int listens = 0;
	socklen_t size = sizeof(listens);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) < 0)
		return -1;
	errno = EINVAL;
	/* On one that listens already it only sets the queue's length. */
	if (!listens || listen(fd, QUEUE) < 0)
		return -1;
	connection_set_options(fd);
	for (size_t i = 0; i < PENDING_MAX; i++)
		pending[i].fd = -1;
	listening_fd = fd;
	return 0;
}

static void forget(struct pending *one)
{
	explicit_bzero(one->bytes, sizeof(one->bytes));
	one->got = 0;
	one->fd = -1;
}

static bool is_complete(const struct pending *one)
{
	return one->got == sizeof(one->bytes);
}

/* Only who has the token is told why. */
static void turn_away(struct pending *one)
{
	if (is_complete(one) && token_equals(one->bytes))
		connection_refuse(one->fd, one->bytes + TOKEN_SIZE);
	close_fd(&one->fd);
	forget(one);
}

/* Takes what has come. The answer to a wrong token is the connection's end, when and only when as many
 * bytes are there as a right one and its nonce have: no moment tells which of them was wrong. */
static void advance(struct pending *one)
{
	ssize_t got;

	if (!is_complete(one)) {
		got = read_some(one->fd, one->bytes + one->got, sizeof(one->bytes) - one->got);
		if (got < 0 && errno == EAGAIN)
			return;
		if (got <= 0) {
			turn_away(one);
			return;
		}
		one->got = (uint8_t)(one->got + got);
	}
	if (!is_complete(one))
		return;
	/* When all ports are taken it waits for one, as long as it has time. */
	if (!token_equals(one->bytes))
		turn_away(one);
	else if (connection_begin(one->fd, one->bytes + TOKEN_SIZE))
		forget(one);
}

static struct pending *free_place(void)
{
	for (size_t i = 0; i < PENDING_MAX; i++) {
		if (pending[i].fd < 0)
			return &pending[i];
	}
	return NULL;
}

static struct pending *oldest(void)
{
	struct pending *first = &pending[0];

	for (size_t i = 1; i < PENDING_MAX; i++) {
		if (pending[i].since < first->since)
			first = &pending[i];
	}
	return first;
}

/* When a place can be had for the next one who waits. */
static int64_t place_at(int64_t now)
{
	int64_t at = free_place() ? now : oldest()->since + GRACE_MS;

	return at > paused_until ? at : paused_until;
}

static struct pending *make_place(void)
{
	struct pending *place = free_place();

	if (place)
		return place;
	place = oldest();
	/* Its bytes may have come since poll(2). */
	advance(place);
	if (place->fd >= 0)
		turn_away(place);
	return place;
}

/* Takes the next client; false when there is none, or no place for it yet. */
static bool accept_one(int64_t now)
{
	struct pending *place;
	int fd;

	if (place_at(now) > now)
		return false;
	fd = accept4(listening_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
			paused_until = now + PAUSE_MS;
		return false;
	}
	place = make_place();
	place->fd = fd;
	place->since = now;
	advance(place);
	return true;
}

void listen_polls(struct pollfd *polls, int64_t now)
{
	for (size_t i = 0; i < LISTEN_POLLS; i++)
		polls[i] = (struct pollfd){ .fd = -1 };
	if (listening_fd < 0)
		return;
	if (place_at(now) <= now)
		polls[0] = (struct pollfd){ .fd = listening_fd, .events = POLLIN };
	for (size_t i = 0; i < PENDING_MAX; i++) {
		if (!is_complete(&pending[i]))
			polls[1 + i] = (struct pollfd){ .fd = pending[i].fd, .events = POLLIN };
	}
}

void listen_step(const struct pollfd *polls, int64_t now)
{
	if (listening_fd < 0)
		return;
	for (size_t i = 0; i < PENDING_MAX; i++) {
		struct pending *one = &pending[i];
		if (one->fd >= 0 && (polls[1 + i].revents || is_complete(one)))
			advance(one);
		if (one->fd >= 0 && now >= one->since + PROVE_MS)
			turn_away(one);
	}
	/* Not until there is none: the sessions have their turn between. */
	if (polls[0].revents) {
		for (size_t i = 0; i < PENDING_MAX && accept_one(now); i++)
			continue;
	}
}

int64_t listen_wakeup(int64_t now)
{
	int64_t at = INT64_MAX;

	if (listening_fd < 0)
		return at;
	if (place_at(now) > now)
		at = place_at(now);
	for (size_t i = 0; i < PENDING_MAX; i++) {
		if (pending[i].fd < 0)
			continue;
		if (is_complete(&pending[i]) && connection_is_free())
			return now;
		if (pending[i].since + PROVE_MS < at)
			at = pending[i].since + PROVE_MS;
	}
	return at;
}
