/* What happens between fork and exec: an EXEC request becomes a process. */
#ifndef BOX_CHILD_H
#define BOX_CHILD_H

#include <stdint.h>
#include <stddef.h>
#include <stdbool.h>

#define ARGUMENTS_MAX 16384 /* of argv, and again of the environment */

struct exec_request {
	uint32_t flags;
	uint32_t timeout_ms;
	uint16_t argc, envc;
	uint16_t rows, columns; /* of the terminal */
	uint32_t limit_count;
	const uint8_t *limits; /* LIMIT_SIZE bytes each */
	const char *strings; /* cwd, user, argv, environment; each NUL-terminated */
};

/* Reads and checks an EXEC payload; false when it is not one. */
bool exec_parse(const uint8_t *payload, size_t size, struct exec_request *request);

/* In the forked child: becomes the command, with these as its stdin, stdout, stderr. When it cannot, says
 * why on stderr and exits 127 (no such file) or 126. */
_Noreturn void child_run(const struct exec_request *request, size_t port, const int stdio[3]);

#endif
