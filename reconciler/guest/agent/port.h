/* One port: its stream, its session, the session's command. A virtio-serial port, or a connection. */
#ifndef BOX_PORT_H
#define BOX_PORT_H

#include "group.h"
#include "token.h"
#include "wire.h"

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Room for control frames behind one frame of data: more than an honest client can have unanswered. */
#define OUT_CONTROL 2048
#define OUT_SIZE (HEADER_SIZE + FRAME_MAX + OUT_CONTROL)
/* The last bytes of a frame may have to wait until more tell whether they begin a token. */
#define IN_SIZE (HEADER_SIZE + EXEC_MAX + TOKEN_SIZE)

enum session_state {
	SESSION_NONE,  /* silent: bytes are only searched for the token */
	SESSION_NONCE, /* the token was seen, its nonce is still coming */
	SESSION_OPEN,
};

enum command_state {
	COMMAND_NONE,
	COMMAND_RUNNING,
	COMMAND_DRAINING, /* its leader is gone, its output may still come, until drain_until */
	COMMAND_ENDING,	  /* its group is killed, owed[] bytes of output are still to be read */
};

/* Index of a command's pipes; also the number of the fd in the child. */
enum { PIPE_IN, PIPE_OUT, PIPE_ERR, PIPE_COUNT };

struct command {
	enum command_state state;
	pid_t pid;
	int status; /* of wait, once the leader is gone */
	bool timed_out;
	bool truncated; /* its output was still open when reading it ended */
	bool has_terminal; /* both its input and its output are the master then */
	bool stdin_ended;
	bool end_typed; /* on the terminal */
	int64_t kill_at; /* 0: no timeout */
	int64_t drain_until;
	int pipes[PIPE_COUNT]; /* our ends; -1 when closed */
	size_t owed[PIPE_COUNT];
	uint8_t turn; /* which of stdout and stderr is read next */
	/* stdin that the child has not taken yet, a ring */
	size_t ring_start, ring_length;
	uint32_t unacknowledged;
	uint8_t ring[STDIN_WINDOW];
};

struct port {
	int fd; /* -1: a place for a connection */
	size_t index;
	/* Edge triggered: true until the port says otherwise. */
	bool may_read, may_write;
	bool gone;	     /* a socket at its end; a virtio port comes back */
	bool single;	     /* a connection: it ends with its session, and no second one begins in it */
	int64_t close_at;    /* of a connection whose session is over; 0: it is not */
	int64_t hung_up_at;  /* 0: connected, as far as we know */
	enum session_state state;
	uint8_t matched; /* how much of the token the input ends with */
	size_t in_start, in_scanned, in_end;
	size_t out_start, out_length;
	struct command command;
	uint8_t in[IN_SIZE];
	uint8_t out[OUT_SIZE];
};

extern struct port ports[PORT_COUNT];
extern size_t port_count;

/* Adds a port that speaks through fd, which becomes the agent's. */
void port_add(int fd);

/* Starts a session whose token and nonce have come. */
void port_begin(struct port *port, const uint8_t nonce[NONCE_SIZE]);

/* Reads what came, at most one buffer full, and acts on it. */
void port_read(struct port *port, int64_t now);

/* Told by each event of the port whether it came with a hang-up. */
void port_note_hangup(struct port *port, bool hung_up, int64_t now);

/* Ends the session of a client that stayed away. */
void port_check_hangup(struct port *port, int64_t now);

/* When port_check_hangup() has to be called; INT64_MAX: no such time. */
int64_t port_wakeup(const struct port *port);

/* Ends a session: kills its command, drops its buffers. */
void port_reset(struct port *port);

/* Tells the client why, and ends the session. */
void port_fail(struct port *port, int error, const char *text);

#endif
