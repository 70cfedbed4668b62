/* Connections that have not proved yet that they know the token. */
#ifndef BOX_LISTEN_H
#define BOX_LISTEN_H

#include <poll.h>
#include <stdint.h>

#define PENDING_MAX 16
#define LISTEN_POLLS (1 + PENDING_MAX)

/* Takes a listening socket, which becomes the agent's; -1 and errno when it is none. */
int listen_use(int fd);

/* Fills LISTEN_POLLS entries with what is waited for; all are ignored by poll(2) when nothing is. */
void listen_polls(struct pollfd *polls, int64_t now);

/* Acts on what poll(2) said of them: accepts, reads, makes sessions, closes what has had its time. */
void listen_step(const struct pollfd *polls, int64_t now);

/* When listen_step() has to be called at the latest; INT64_MAX: no such time. */
int64_t listen_wakeup(int64_t now);

#endif
