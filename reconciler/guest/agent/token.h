/* Finding the session token in a stream, at any position and however reads split it. */
#ifndef BOX_TOKEN_H
#define BOX_TOKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKEN_SIZE 32

/* The token until a CLAIM sets another. Public: it guards nothing, it only marks the start of a
 * session. */
extern const uint8_t unclaimed_token[TOKEN_SIZE];

/* Sets what token_scan looks for. Whoever keeps a matched count has to reset it to 0. */
void token_set(const uint8_t token[TOKEN_SIZE]);

/* Looks for the token in the next size bytes of a stream. *matched is how many bytes of the token the
 * stream ends with so far, kept by the caller from call to call. Returns the index just past the
 * first complete token (and sets *matched to 0), or 0 when there is none. */
size_t token_scan(uint8_t *matched, const uint8_t *data, size_t size);

/* Whether these bytes are the token, in a time that does not tell how many of them are right. */
bool token_equals(const uint8_t bytes[TOKEN_SIZE]);

#endif
