/* The resource limits of an EXEC. */
#ifndef BOX_LIMITS_H
#define BOX_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIMITS_MAX 16 /* as many as the kernel has */
#define LIMIT_SIZE 20 /* resource 4, soft 8, hard 8 */

/* Whether each is of a resource that the kernel has, its soft limit not above its hard one. */
bool limits_valid(const uint8_t *limits, size_t count);

/* Sets them for the calling process; -1 and errno on failure. */
int limits_set(const uint8_t *limits, size_t count);

#endif
