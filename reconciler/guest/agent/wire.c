#include "wire.h"

#include <errno.h>

static const struct {
	uint32_t least, most;
} bounds[] = {
	[REQ_CLAIM] = { CLAIM_FIXED, CLAIM_FIXED + HOSTNAME_MAX },
	[REQ_EXEC] = { EXEC_FIXED, EXEC_MAX },
	[REQ_STDIN] = { 0, FRAME_MAX },
	[REQ_STDIN_EOF] = { 0, 0 },
	[REQ_SIGNAL] = { 4, 4 },
	[REQ_PING] = { 0, PING_MAX },
	[REQ_SHUTDOWN] = { 4, 4 },
	[REQ_RESIZE] = { 4, 4 },
};

uint16_t get_u16(const uint8_t *bytes)
{
	return (uint16_t)(bytes[0] | bytes[1] << 8);
}

uint32_t get_u32(const uint8_t *bytes)
{
	return (uint32_t)get_u16(bytes) | (uint32_t)get_u16(bytes + 2) << 16;
}

uint64_t get_u64(const uint8_t *bytes)
{
	return (uint64_t)get_u32(bytes) | (uint64_t)get_u32(bytes + 4) << 32;
}

void put_u16(uint8_t *bytes, uint16_t value)
{
	bytes[0] = (uint8_t)value;
	bytes[1] = (uint8_t)(value >> 8);
}

void put_u32(uint8_t *bytes, uint32_t value)
{
	put_u16(bytes, (uint16_t)value);
	put_u16(bytes + 2, (uint16_t)(value >> 16));
}

void put_header(uint8_t *bytes, enum reply type, size_t length)
{
	put_u32(bytes, (uint32_t)type);
	put_u32(bytes + 4, (uint32_t)length);
}

int check_header(const uint8_t header[HEADER_SIZE], size_t *length)
{
	uint8_t type = header[0];
	uint32_t size = get_u32(header + 4);

	if (header[1] || header[2] || header[3])
		return EBADMSG;
	if (type < REQ_CLAIM || type > REQ_RESIZE)
		return ENOMSG;
	if (size < bounds[type].least || size > bounds[type].most)
		return EMSGSIZE;
	*length = size;
	return 0;
}
