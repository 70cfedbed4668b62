#include "user.h"

#include "sys.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PASSWD "/etc/passwd"
#define GROUP "/etc/group"
#define LINE_MAX_SIZE 4096
#define ID_MAX (UINT32_MAX - 1)

static void close_file(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define AUTO_FCLOSE __attribute__((cleanup(close_file)))

/* Splits a line of a colon-separated file in place; absent fields are "". */
static void split(char *line, char *fields[], size_t count)
{
	static char empty[] = "";

	line[strcspn(line, "\n")] = '\0';
	for (size_t i = 0; i < count; i++) {
		fields[i] = line ? strsep(&line, ":") : empty;
	}
}

static void set_home(struct user *user, const char *home, const char *shell)
{
	snprintf(user->home, sizeof(user->home), "%s", *home ? home : "/");
	snprintf(user->shell, sizeof(user->shell), "%s", *shell ? shell : DEFAULT_SHELL);
}

/* Finds a user's line by name, or by uid when name is a number; false when there is none. */
static bool find_passwd(const char *name, struct user *user)
{
	AUTO_FCLOSE FILE *file = fopen(PASSWD, "re");
	char line[LINE_MAX_SIZE];
	char *field[7];
	uint32_t wanted = 0, uid, gid;
	bool by_number = parse_number(name, ID_MAX, &wanted);

	while (file && fgets(line, sizeof(line), file)) {
		split(line, field, COUNT_OF(field));
		if (!parse_number(field[2], ID_MAX, &uid) || !parse_number(field[3], ID_MAX, &gid))
			continue;
		if (strcmp(field[0], name) != 0 && !(by_number && uid == wanted))
			continue;
		user->uid = uid;
		user->gid = gid;
		set_home(user, field[5], field[6]);
		snprintf(user->name, sizeof(user->name), "%s", field[0]);
		return true;
	}
	user->uid = wanted;
	user->gid = 0;
	set_home(user, wanted == 0 ? "/root" : "/", "");
	return by_number;
}

static bool find_group(const char *name, gid_t *group)
{
	AUTO_FCLOSE FILE *file = fopen(GROUP, "re");
	char line[LINE_MAX_SIZE];
	char *field[3];
	uint32_t gid;

	while (file && fgets(line, sizeof(line), file)) {
		split(line, field, COUNT_OF(field));
		if (strcmp(field[0], name) == 0 && parse_number(field[2], ID_MAX, &gid)) {
			*group = gid;
			return true;
		}
	}
	if (!parse_number(name, ID_MAX, &gid))
		return false;
	*group = gid;
	return true;
}

static bool lists(char *members, const char *name)
{
	for (char *rest = members, *one; (one = strsep(&rest, ","));) {
		if (strcmp(one, name) == 0)
			return true;
	}
	return false;
}

static void find_memberships(const char *name, struct user *user)
{
	AUTO_FCLOSE FILE *file = fopen(GROUP, "re");
	char line[LINE_MAX_SIZE];
	char *field[4];
	uint32_t gid;

	user->groups[user->group_count++] = user->gid;
	while (file && *name && user->group_count < GROUPS_MAX && fgets(line, sizeof(line), file)) {
		split(line, field, COUNT_OF(field));
		if (parse_number(field[2], ID_MAX, &gid) && lists(field[3], name))
			user->groups[user->group_count++] = gid;
	}
}

const char *user_find(const char *text, struct user *user)
{
	char name[256];
	char *group;

	memset(user, 0, sizeof(*user));
	if ((size_t)snprintf(name, sizeof(name), "%s", *text ? text : "0") >= sizeof(name))
		return "the user's name is too long";
	group = strchr(name, ':');
	if (group)
		*group++ = '\0';
	if (!find_passwd(name, user))
		return "no such user in /etc/passwd";
	if (group && !find_group(group, &user->gid))
		return "no such group in /etc/group";
	find_memberships(group ? "" : user->name, user);
	return NULL;
}
