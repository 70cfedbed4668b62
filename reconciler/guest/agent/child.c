#include "child.h"

#include "group.h"
#include "limits.h"
#include "own.h"
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

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_TERM "xterm"
#define DEFAULT_COUNT 6

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

/* Adds a variable if there is none of that name. */
static void add_default(char *variables[], size_t *total, const char *name, const char *value)
{
	static char texts[DEFAULT_COUNT][sizeof("LOGNAME=") + sizeof(((struct user *)0)->home)];
	static size_t used;

	if (getenv(name))
		return;
	snprintf(texts[used], sizeof(texts[used]), "%s=%s", name, value);
	variables[(*total)++] = texts[used++];
}

static void set_environment(const char *strings, const struct exec_request *request,
			    const struct user *user)
{
	static char *variables[ARGUMENTS_MAX + DEFAULT_COUNT + 1];
	size_t total = 0;

	for (uint16_t i = 0; i < request->envc; i++)
		variables[total++] = (char *)(uintptr_t)next(&strings);
	environ = variables;
	add_default(variables, &total, "PATH", DEFAULT_PATH);
	add_default(variables, &total, "HOME", user->home);
	add_default(variables, &total, "TERM", DEFAULT_TERM);
	if (!(request->flags & EXEC_LOGIN))
		return;
	add_default(variables, &total, "SHELL", user->shell);
	if (*user->name) {
		add_default(variables, &total, "USER", user->name);
		add_default(variables, &total, "LOGNAME", user->name);
	}
}

/* A login shell starts at home, if there is one. */
static void enter(const char *cwd, const struct exec_request *request, const struct user *user)
{
	if (!*cwd && request->flags & EXEC_LOGIN && chdir(user->home) == 0)
		return;
	if (chdir(*cwd ? cwd : "/") < 0)
		fail(126, cwd, strerror(errno));
}

/* The name of a login shell begins with "-". */
static void exec_shell(const char *shell, char *arguments[])
{
	static char name[sizeof(((struct user *)0)->shell) + 1];
	const char *slash = strrchr(shell, '/');

	snprintf(name, sizeof(name), "-%s", slash ? slash + 1 : shell);
	arguments[0] = name;
	execv(shell, arguments);
}

_Noreturn static void run_login_shell(const struct user *user, char *arguments[])
{
	exec_shell(user->shell, arguments);
	if (errno == ENOENT)
		exec_shell(DEFAULT_SHELL, arguments);
	fail_errno(user->shell);
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
	set_policy(SCHED_OTHER);
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
	set_environment(strings, request, &user);
	/* Before the change of user, as container runtimes do: root's own directory may be the cwd. */
	enter(cwd, request, &user);
	if (limits_set(request->limits, request->limit_count) < 0)
		fail(126, "cannot set its limits", strerror(errno));
	if (geteuid() == 0)
		become(&user, has_terminal);
	if (request->flags & EXEC_OWN)
		own_run(arguments);
	if (request->flags & EXEC_LOGIN)
		run_login_shell(&user, arguments);
	if (*arguments[0])
		execvp(arguments[0], arguments);
	else
		errno = ENOENT;
	fail_errno(arguments[0]);
}
