/* A connection whose client has proved itself, as a port: one session, from its READY to its close. */
#ifndef BOX_CONNECTION_H
#define BOX_CONNECTION_H

#include "port.h"

/* Makes all ports places for connections. */
void connections_prepare(void);

/* Sets what the connections of a listening socket shall be like; each inherits it. */
void connection_set_options(int fd);

/* Whether a port has no connection. */
bool connection_is_free(void);

/* Starts the session of a connection, which becomes the port's; false when all ports are taken. */
bool connection_begin(int fd, const uint8_t nonce[NONCE_SIZE]);

/* Tells a client that all ports are taken. */
void connection_refuse(int fd, const uint8_t nonce[NONCE_SIZE]);

/* Closes it when the client is gone, or some time after the session has ended. */
void connection_step(struct port *port, int64_t now);

/* When connection_step() has to be called; INT64_MAX: no such time. */
int64_t connection_wakeup(const struct port *port);

#endif
