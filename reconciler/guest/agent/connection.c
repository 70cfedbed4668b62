#include "connection.h"

#include "output.h"
#include "serve.h"
#include "sys.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

/* How long a client has to read the ERROR that ended its session. Closed at once, with bytes of the
 * client's unread, the kernel would take back what was not delivered yet. */
#define LINGER_MS 3000

/* A client that vanished without a FIN: its host is asked after this many seconds of silence. */
#define KEEPALIVE_IDLE 30
#define KEEPALIVE_INTERVAL 10
#define KEEPALIVE_PROBES 3

void connections_prepare(void)
{
	while (port_count < PORT_COUNT) {
		ports[port_count].single = true;
		port_add(-1);
	}
}

void connection_set_options(int fd)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
		{ IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE },
		{ IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL },
		{ IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES },
	};

	/* A socket that is not TCP's has none of them, and needs none. */
	for (size_t i = 0; i < COUNT_OF(options); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			   sizeof(options[i].value));
}

static struct port *free_port(void)
{
	for (size_t i = 0; i < port_count; i++) {
		if (ports[i].fd < 0)
			return &ports[i];
	}
	return NULL;
}

bool connection_is_free(void)
{
	return free_port() != NULL;
}

bool connection_begin(int fd, const uint8_t nonce[NONCE_SIZE])
{
	struct port *port = free_port();

	if (!port)
		return false;
	port->fd = fd;
	port->may_read = port->may_write = true;
	port_begin(port, nonce);
	if (!serve_watch(port))
		port->gone = true;
	return true;
}

void connection_refuse(int fd, const uint8_t nonce[NONCE_SIZE])
{
	static const char text[] = "all sessions are taken";
	uint8_t answer[NONCE_SIZE + HEADER_SIZE + 4 + sizeof(text) - 1];

	memcpy(answer, nonce, NONCE_SIZE);
	put_header(answer + NONCE_SIZE, REP_ERROR, 4 + sizeof(text) - 1);
	put_u32(answer + NONCE_SIZE + HEADER_SIZE, EBUSY);
	memcpy(answer + NONCE_SIZE + HEADER_SIZE + 4, text, sizeof(text) - 1);
	/* A new connection has room for it. */
	write_some(fd, answer, sizeof(answer));
}

static void end(struct port *port)
{
	port_reset(port);
	close_fd(&port->fd);
	port->may_read = port->may_write = port->gone = false;
	port->hung_up_at = port->close_at = 0;
}

void connection_step(struct port *port, int64_t now)
{
	if (!port->single || port->fd < 0)
		return;
	if (port->state == SESSION_NONE && port->close_at == 0)
		port->close_at = now + LINGER_MS;
	if (port->close_at && port->out_length == 0)
		shutdown(port->fd, SHUT_WR);
	if (port->gone || (port->close_at && now >= port->close_at))
		end(port);
}

int64_t connection_wakeup(const struct port *port)
{
	return port->close_at ? port->close_at : INT64_MAX;
}
