/* The loop: one thread, nothing in it waits for one port alone. */
#ifndef BOX_SERVE_H
#define BOX_SERVE_H

#include "port.h"

/* Blocks the signals that serve() reads from a file. Before the first child. */
void serve_prepare(void);

/* Tells serve() to look after a port that has a file; false when the kernel cannot. */
bool serve_watch(const struct port *port);

/* Serves the ports until a shutdown, or until a plain process's only client is gone. */
_Noreturn void serve(void);

#endif
