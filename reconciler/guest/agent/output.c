#include "output.h"

#include "sys.h"

#include <errno.h>
#include <string.h>

bool output_bytes(struct port *port, const void *bytes, size_t size)
{
	if (port->out_start > 0 && OUT_SIZE - port->out_start - port->out_length < size) {
		memmove(port->out, port->out + port->out_start, port->out_length);
		port->out_start = 0;
	}
	if (OUT_SIZE - port->out_start - port->out_length < size)
		return false;
	memcpy(port->out + port->out_start + port->out_length, bytes, size);
	port->out_length += size;
	return true;
}

bool output_frame(struct port *port, enum reply type, const void *payload, size_t size)
{
	uint8_t frame[HEADER_SIZE + OUT_CONTROL];

	if (size > OUT_CONTROL)
		return false;
	put_header(frame, type, size);
	if (size > 0)
		memcpy(frame + HEADER_SIZE, payload, size);
	return output_bytes(port, frame, HEADER_SIZE + size);
}

void output_flush(struct port *port)
{
	while (port->out_length > 0 && port->may_write) {
		ssize_t put = write_some(port->fd, port->out + port->out_start, port->out_length);
		if (put <= 0) {
			/* EAGAIN: full, or nobody is connected. The port wakes us when that changes. */
			port->may_write = false;
			if (put < 0 && errno != EAGAIN)
				port->gone = true;
			return;
		}
		port->out_start += (size_t)put;
		port->out_length -= (size_t)put;
	}
	if (port->out_length == 0)
		port->out_start = 0;
}
