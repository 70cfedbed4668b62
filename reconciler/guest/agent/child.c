#include "child.h"

#include "group.h"
#include "limits.h"
#include "sys.h"
#include "terminal.h"
#include "user.h"
#include "wire.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_TERM "TERM=xterm"
#define DEFAULT_COUNT 3

bool exec_parse(const uint8_t *payload, size_t size, struct exec_request *request)
{
	const char *strings;
	size_t left = size - EXEC_FIXED;
	size_t expected;

	request->flags = get_u32(payload);
	request->timeout_ms = get_u32(payload + 4);
	request->argc = get_u16(payload + 8);
	request->envc = get_u16(payload + 10);
	request->rows = get_u16(payload + 12);
	request->columns = get_u16(payload + 14);
	request->limit_count = get_u32(payload + 16);
	request->limits = payload + EXEC_FIXED;
	if (request->limit_count > LIMITS_MAX || request->limit_count * LIMIT_SIZE > left)
		return false;
	left -= request->limit_count * LIMIT_SIZE;
	strings = (const char *)request->limits + request->limit_count * LIMIT_SIZE;
	request->strings = strings;
	if (!(request->flags & EXEC_TERMINAL) && (request->rows || request->columns))
		return false;
	if (request->argc < 1 || request->argc > ARGUMENTS_MAX || request->envc > ARGUMENTS_MAX)
		return false;
	expected = 2 + (size_t)request->argc + request->envc;
	for (size_t i = 0; i < expected; i++) {
		const char *end = memchr(strings, '\0', left);
		if (!end)
			return false;
		/* The name of a variable is not empty. */
		if (i >= 2 + (size_t)request->argc && (!strchr(strings, '=') || *strings == '='))
			return false;
		left -= (size_t)(end + 1 - strings);
		strings = end + 1;
	}
	return left == 0;
}

static const char *next(const char **strings)
{
	const char *string = *strings;

	*strings += strlen(string) + 1;
	return string;
}

_Noreturn static void fail(int code, const char *what, const char *reason)
{
	dprintf(STDERR_FILENO, "box: %s: %s\n", what, reason);
	_exit(code);
}

_Noreturn static void fail_errno(const char *what)
{
	fail(errno == ENOENT ? 127 : 126, what, strerror(errno));
}

static void take_stdio(const int stdio[3])
{
	for (int i = 0; i < 3; i++) {
		if (dup2(stdio[i], i) < 0)
			_exit(126);
	}
}

static void reset_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void become(const struct user *user, bool has_terminal)
{
	/* Opening /dev/stdout asks for permission on the pipe, which is root's until here. A terminal
	 * stays in the group of terminals. */
	for (int i = 0; i < 3; i++) {
		if (fchown(i, user->uid, has_terminal ? (gid_t)-1 : user->gid) < 0)
			fail_errno("cannot hand over its input and output");
	}
	if (setgroups(user->group_count, user->groups) < 0 || setgid(user->gid) < 0 ||
	    setuid(user->uid) < 0)
		fail_errno("cannot change to the user");
}

static void set_environment(const char *strings, uint16_t count, const char *home)
{
	static char *variables[ARGUMENTS_MAX + DEFAULT_COUNT + 1];
	static char home_variable[sizeof("HOME=") + sizeof(((struct user *)0)->home)];
	static char path[] = DEFAULT_PATH, term[] = DEFAULT_TERM;
	size_t total = 0;

	for (uint16_t i = 0; i < count; i++)
		variables[total++] = (char *)(uintptr_t)next(&strings);
	environ = variables;
	snprintf(home_variable, sizeof(home_variable), "HOME=%s", home);
	if (!getenv("PATH"))
		variables[total++] = path;
	if (!getenv("HOME"))
		variables[total++] = home_variable;
	if (!getenv("TERM"))
		variables[total] = term;
}

_Noreturn void child_run(const struct exec_request *request, size_t port, const int stdio[3])
{
	static char *arguments[ARGUMENTS_MAX + 1];
	const char *strings = request->strings;
	const char *cwd = next(&strings);
	const char *name = next(&strings);
	const char *reason;
	struct user user;
	bool has_terminal = request->flags & EXEC_TERMINAL;

	setsid();
	setpriority(PRIO_PROCESS, 0, 0);
	take_stdio(stdio);
	reset_signals();
	if (has_terminal && terminal_take(STDIN_FILENO) < 0)
		fail(126, "cannot take its terminal", strerror(errno));
	if (group_join(port) < 0)
		fail(126, "cannot join its cgroup", strerror(errno));
	reason = user_find(name, &user);
	if (reason)
		fail(126, name, reason);
	for (uint16_t i = 0; i < request->argc; i++)
		arguments[i] = (char *)(uintptr_t)next(&strings);
	set_environment(strings, request->envc, user.home);
	/* Before the change of user, as container runtimes do: root's own directory may be the cwd. */
	if (chdir(*cwd ? cwd : "/") < 0)
		fail(126, cwd, strerror(errno));
	if (limits_set(request->limits, request->limit_count) < 0)
		fail(126, "cannot set its limits", strerror(errno));
	if (geteuid() == 0)
		become(&user, has_terminal);
	if (*arguments[0])
		execvp(arguments[0], arguments);
	else
		errno = ENOENT;
	fail_errno(arguments[0]);
}
