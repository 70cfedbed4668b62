/* Who a command runs as: "user[:group]" by name or number, looked up in the root image's files. */
#ifndef BOX_USER_H
#define BOX_USER_H

#include <sys/types.h>

#define GROUPS_MAX 64
#define DEFAULT_SHELL "/bin/sh"

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[GROUPS_MAX];
	size_t group_count;
	char name[256]; /* "" when only its number is known */
	char home[256];
	char shell[256];
};

/* Returns NULL, or the reason why text names nobody. "" is root. A name that is not in the files is
 * never taken for root; a number needs no entry. */
const char *user_find(const char *text, struct user *user);

#endif
