/* CLAIM: what makes this VM one of its own after many were restored from one snapshot. */
#ifndef BOX_CLAIM_H
#define BOX_CLAIM_H

#include <stddef.h>
#include <stdint.h>

struct claim {
	const uint8_t *token;
	const uint8_t *entropy; /* 64 bytes */
	int64_t realtime_ns;
	const uint8_t *machine_id; /* 16 bytes */
	uint8_t flags;
	const char *hostname; /* not NUL-terminated; empty: left as it is */
	size_t hostname_length;
};

/* Opens the kernel's random device while nothing but the agent runs; -1 and errno on failure. Without
 * this (a plain host process) claim_apply changes nothing. */
int claim_open(void);

/* Returns 0, or the errno of the line that claim_read rejects. */
int claim_read(const uint8_t *payload, size_t size, struct claim *claim);

/* Reseeds the kernel, sets clock, host name and machine id, mounts /data. Returns NULL, or what failed,
 * with errno. */
const char *claim_apply(const struct claim *claim);

#endif
