#include "limits.h"

#include "wire.h"

#include <sys/resource.h>

bool limits_valid(const uint8_t *limits, size_t count)
{
	for (size_t i = 0; i < count; i++, limits += LIMIT_SIZE) {
		if (get_u32(limits) >= RLIM_NLIMITS || get_u64(limits + 4) > get_u64(limits + 12))
			return false;
	}
	return true;
}

int limits_set(const uint8_t *limits, size_t count)
{
	for (size_t i = 0; i < count; i++, limits += LIMIT_SIZE) {
		const struct rlimit limit = {
			.rlim_cur = get_u64(limits + 4),
			.rlim_max = get_u64(limits + 12),
		};
		if (setrlimit((int)get_u32(limits), &limit) < 0)
			return -1;
	}
	return 0;
}
