#include "token.h"

#include <string.h>

const uint8_t unclaimed_token[TOKEN_SIZE] = "box-unclaimed-agent-protocol-v1";

static uint8_t current[TOKEN_SIZE];

/* Knuth, Morris, Pratt: border[i] is the length of the longest proper prefix of the token that is also
 * a suffix of its first i + 1 bytes. */
static uint8_t border[TOKEN_SIZE];

void token_set(const uint8_t token[TOKEN_SIZE])
{
	uint8_t length = 0;

	memcpy(current, token, TOKEN_SIZE);
	border[0] = 0;
	for (size_t i = 1; i < TOKEN_SIZE; i++) {
		while (length > 0 && current[i] != current[length])
			length = border[length - 1];
		if (current[i] == current[length])
			length++;
		border[i] = length;
	}
}

size_t token_scan(uint8_t *matched, const uint8_t *data, size_t size)
{
	uint8_t length = *matched;

	for (size_t i = 0; i < size; i++) {
		if (length == 0) {
			const uint8_t *first = memchr(data + i, current[0], size - i);
			if (!first)
				break;
			i = (size_t)(first - data);
		}
		while (length > 0 && data[i] != current[length])
			length = border[length - 1];
		if (data[i] == current[length])
			length++;
		if (length == TOKEN_SIZE) {
			*matched = 0;
			return i + 1;
		}
	}
	*matched = length;
	return 0;
}

bool token_equals(const uint8_t bytes[TOKEN_SIZE])
{
	/* Volatile, or the compiler may leave the loop at the first difference. */
	volatile uint8_t difference = 0;

	for (size_t i = 0; i < TOKEN_SIZE; i++)
		difference = (uint8_t)(difference | (bytes[i] ^ current[i]));
	return difference == 0;
}
