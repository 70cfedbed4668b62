/* The loop: one thread, nothing in it waits for one port alone. */
#ifndef BOX_SERVE_H
#define BOX_SERVE_H

/* Blocks the signals that serve() reads from a file. Before the first child. */
void serve_prepare(void);

/* Serves the ports until a shutdown, or until a plain process's only client is gone. */
_Noreturn void serve(void);

#endif
