#include "tsc.h"

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)

enum { MEASURE_NS = 50 * 1000 * 1000 };

static int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The counter and the clock at one moment: the reading that took least, so that an interruption
 * between the two does not count. */
static void sample(uint64_t *ticks, int64_t *ns)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 32; i++) {
		uint64_t before = __builtin_ia32_rdtsc();
		int64_t at = monotonic_ns();
		uint64_t took = __builtin_ia32_rdtsc() - before;

		if (took < best) {
			best = took;
			*ticks = before + took / 2;
			*ns = at;
		}
	}
}

int tsc_print(void)
{
	const struct timespec pause = {.tv_nsec = MEASURE_NS};
	uint64_t first, last;
	int64_t start, end;

	sample(&first, &start);
	nanosleep(&pause, NULL);
	sample(&last, &end);
	if (end <= start || last <= first)
		return 1;
	printf("%llu\n", (unsigned long long)((last - first) * 1000000 / (uint64_t)(end - start)));
	return 0;
}

#else

int tsc_print(void)
{
	return 1;
}

#endif
