/* What each frame of a client does. */
#ifndef BOX_REQUEST_H
#define BOX_REQUEST_H

#include "port.h"

/* Reads what READY says of the kernel: once, while /proc can be read. */
void request_describe_kernel(void);

/* The agent is claimed from its start, with a token of which only its starter knows. */
void request_claim_at_start(const uint8_t *token);

/* Sends READY. */
void request_greet(struct port *port);

/* Acts on a frame whose header was checked. May end the session. */
void request_handle(struct port *port, uint8_t type, const uint8_t *payload, size_t size, int64_t now);

/* When the commands of a SHUTDOWN have to be gone; 0: none was asked for. */
int64_t request_shutdown_deadline(void);

/* Tells who asked for it that nothing is left to write out. */
void request_tell_down(void);

#endif
