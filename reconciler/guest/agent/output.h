/* What a port says: frames into its buffer, the buffer into the port. */
#ifndef BOX_OUTPUT_H
#define BOX_OUTPUT_H

#include "port.h"

/* Queues bytes or a frame; false when there is no room, which only a client that does not read its
 * answers can bring about. */
bool output_bytes(struct port *port, const void *bytes, size_t size);
bool output_frame(struct port *port, enum reply type, const void *payload, size_t size);

/* Writes as much as the port takes. */
void output_flush(struct port *port);

#endif
