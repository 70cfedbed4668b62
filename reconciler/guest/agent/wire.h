/* The frames of the protocol: numbers, bounds, encoding. README.md describes the protocol. */
#ifndef BOX_WIRE_H
#define BOX_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 1
#define NONCE_SIZE 16
#define HEADER_SIZE 8
#define FRAME_MAX 65536
#define EXEC_MAX 262144
#define STDIN_WINDOW 131072
#define PING_MAX 64
#define HOSTNAME_MAX 64
#define CLAIM_FIXED 122 /* token 32, entropy 64, realtime 8, machine id 16, flags 1, length 1 */
#define EXEC_FIXED 20	/* flags 4, timeout 4, argc 2, envc 2, rows 2, columns 2, limits 4 */

enum request {
	REQ_CLAIM = 0x01,
	REQ_EXEC = 0x02,
	REQ_STDIN = 0x03,
	REQ_STDIN_EOF = 0x04,
	REQ_SIGNAL = 0x05,
	REQ_PING = 0x06,
	REQ_SHUTDOWN = 0x07,
	REQ_RESIZE = 0x08,
};

enum reply {
	REP_READY = 0x80,
	REP_CLAIMED = 0x81,
	REP_STARTED = 0x82,
	REP_STDIN_ACK = 0x83,
	REP_DOWN = 0x84,
	REP_PONG = 0x86,
	REP_SHUTTING_DOWN = 0x87,
	REP_STDOUT = 0x88,
	REP_STDERR = 0x89,
	REP_EXIT = 0x8a,
	REP_ERROR = 0x8f,
};

#define CLAIM_MOUNT_DATA 1
#define CLAIM_REHEARSE_DATA 2
#define EXEC_TERMINAL 1
#define EXEC_LOGIN 2
#define EXEC_OWN 4
#define EXEC_FLAGS (EXEC_TERMINAL | EXEC_LOGIN | EXEC_OWN)
#define EXIT_TIMED_OUT 1
#define EXIT_TRUNCATED 2

uint16_t get_u16(const uint8_t *bytes);
uint32_t get_u32(const uint8_t *bytes);
uint64_t get_u64(const uint8_t *bytes);
void put_u16(uint8_t *bytes, uint16_t value);
void put_u32(uint8_t *bytes, uint32_t value);
void put_header(uint8_t *bytes, enum reply type, size_t length);

/* Checks a request's header: known type, zero padding, a length that the type allows. Returns 0 and
 * the payload's length, or an errno. */
int check_header(const uint8_t header[HEADER_SIZE], size_t *length);

#endif
