/* The cgroup of each port's command: what is killed as a whole, whatever the command started. */
#ifndef BOX_GROUP_H
#define BOX_GROUP_H

#include <stdbool.h>
#include <stddef.h>

#define PORT_COUNT 16

/* Makes and opens one cgroup for each port in this directory of a cgroup2 mount; -1 and errno on failure.
 * The open files stay good when the guest mounts something over them. */
int groups_open(int directory);

/* As a plain process without cgroups: a command's group is whatever descends from the agent. */
int groups_use_descendants(void);

/* Whether all ports have but one group, so that one command at a time can run. */
bool groups_shared(void);

/* Moves the calling process into a port's group; -1 and errno on failure. */
int group_join(size_t port);

/* Kills every process in a port's group. */
void group_kill(size_t port);

#endif
