#include "plain.h"

#include "connection.h"
#include "group.h"
#include "listen.h"
#include "power.h"
#include "request.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>

enum { SERVE, LISTEN, TOKEN, CGROUP, OPTION_COUNT };

static const char *const names[OPTION_COUNT] = {
	[SERVE] = "--serve-fd",
	[LISTEN] = "--listen-fd",
	[TOKEN] = "--token-fd",
	[CGROUP] = "--cgroup-fd",
};

_Noreturn static void fail_usage(void)
{
	errno = EINVAL;
	power_fail("usage: box-agent --serve-fd N | --listen-fd N --token-fd N [--cgroup-fd N]"
		   " | --tsc-khz");
}

static size_t find_option(const char *name)
{
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (strcmp(name, names[i]) == 0)
			return i;
	}
	fail_usage();
}

/* Each option at most once; -1 for one that was not given. */
static void read_options(int argc, char **argv, int fds[OPTION_COUNT])
{
	for (size_t i = 0; i < OPTION_COUNT; i++)
		fds[i] = -1;
	if (argc % 2 == 0)
		fail_usage();
	for (int i = 1; i < argc; i += 2) {
		size_t option = find_option(argv[i]);
		uint32_t fd;
		if (fds[option] >= 0 || !parse_number(argv[i + 1], INT16_MAX, &fd))
			fail_usage();
		fds[option] = (int)fd;
	}
	if (fds[SERVE] >= 0 ? argc != 3 : fds[LISTEN] < 0 || fds[TOKEN] < 0)
		fail_usage();
}

static void own(const int fds[OPTION_COUNT])
{
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		if (fds[i] >= 0 && fcntl(fds[i], F_SETFD, FD_CLOEXEC) < 0)
			power_fail(names[i]);
	}
}

/* From a descriptor, because arguments and environment are everybody's to read. */
static void take_token(int fd)
{
	uint8_t token[TOKEN_SIZE];
	size_t there = 0;

	while (there < sizeof(token)) {
		ssize_t got = read_some(fd, token + there, sizeof(token) - there);
		if (got < 0)
			power_fail(names[TOKEN]);
		errno = EINVAL;
		if (got == 0)
			power_fail("--token-fd: fewer than 32 bytes");
		there += (size_t)got;
	}
	close(fd);
	if (memcmp(token, unclaimed_token, TOKEN_SIZE) == 0)
		power_fail("--token-fd: the token that everybody knows");
	request_claim_at_start(token);
	explicit_bzero(token, sizeof(token));
	/* Its memory is not for other processes of its user, nor for a core file. */
	prctl(PR_SET_DUMPABLE, 0);
}

static void use_groups(int directory)
{
	if (directory < 0 ? groups_use_descendants() < 0 : groups_open(directory) < 0)
		power_fail("cannot make groups of the commands");
	close_fd(&directory);
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		power_fail("cannot adopt the commands' children");
}

void plain_start(int argc, char **argv)
{
	int fds[OPTION_COUNT];
	int stream;

	read_options(argc, argv, fds);
	own(fds);
	use_groups(fds[CGROUP]);
	stream = fds[SERVE] >= 0 ? fds[SERVE] : fds[LISTEN];
	if (fcntl(stream, F_SETFL, O_NONBLOCK) < 0)
		power_fail("cannot use the socket");
	if (fds[SERVE] >= 0) {
		port_add(fds[SERVE]);
		return;
	}
	take_token(fds[TOKEN]);
	connections_prepare();
	if (listen_use(fds[LISTEN]) < 0)
		power_fail("--listen-fd: not a listening socket");
}
