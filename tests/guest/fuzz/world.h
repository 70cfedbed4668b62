/* What is around the agent in the fuzzer: the kernel's calls, clients and commands, all in memory. */
#ifndef BOX_FUZZ_WORLD_H
#define BOX_FUZZ_WORLD_H

#include "child.h"
#include "command.h"
#include "limits.h"
#include "port.h"
#include "sys.h"

#include <stdlib.h>
#include <string.h>

/* Two on stream ports, the others come by connections. */
#define CLIENTS 40

/* What a virtio-serial port gives a call. */
#define PAGE 4096

#define must(condition)                                                                                \
	do {                                                                                           \
		if (!(condition))                                                                      \
			abort();                                                                       \
	} while (0)

struct world {
	int64_t now;
	uint8_t token[TOKEN_SIZE]; /* the agent's, just now */
};

extern struct world world;

void world_start(void);
void world_end(void);

int world_port(size_t client);
int world_listener(void);

/* Acts of a client: says something, takes up to so much, ends in some way, connects. */
void world_send(size_t client, const uint8_t *bytes, size_t size);
void world_room(size_t client, size_t room, size_t piece);
void world_hang_up(size_t client, uint8_t how);
void world_connect(size_t client);

/* An act of a command: which command and what is in the byte, how much in the number. */
void world_child(uint8_t what, size_t amount);

/* Tells the ports what epoll would. */
void world_wake(void);

#endif
