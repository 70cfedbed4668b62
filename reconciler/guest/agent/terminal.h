/* The pseudo terminal of a command that wants one. */
#ifndef BOX_TERMINAL_H
#define BOX_TERMINAL_H

#include <stddef.h>
#include <stdint.h>

/* More than a terminal's buffers hold of what was written to it. */
#define TERMINAL_HELD 65536

/* Opens the mount of /dev/pts while nothing but the agent runs; -1 and errno on failure. */
int terminal_prepare(void);

/* Makes a pair: ours does not block, theirs becomes no one's controlling terminal yet. Whoever called it
 * closes what is open of both, after a failure too. Returns -1 and errno on failure. */
int terminal_open(int *ours, int *theirs, uint16_t rows, uint16_t columns);

/* Sets the size; the kernel sends SIGWINCH when it is another one. */
void terminal_resize(int ours, uint16_t rows, uint16_t columns);

/* The character that ends the input of who reads lines from it; -1 when it has none just now. */
int terminal_end_of_input(int ours);

/* In the child, the leader of its own session: makes this its controlling terminal; -1 and errno. */
int terminal_take(int theirs);

#endif
