#include "boot.h"
#include "power.h"
#include "request.h"
#include "serve.h"
#include "sys.h"
#include "tsc.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* For tests of the protocol: one socket, no guest around it. Not reachable for the first process of a
 * machine, and CLAIM changes nothing of the host. */
static void use_socket(int argc, char **argv)
{
	uint32_t fd;

	errno = EINVAL;
	if (argc != 3 || strcmp(argv[1], "--serve-fd") != 0 || !parse_number(argv[2], INT16_MAX, &fd))
		power_fail("usage: box-agent --serve-fd N | --tsc-khz");
	if (fcntl((int)fd, F_SETFL, O_NONBLOCK) < 0 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		power_fail("--serve-fd");
	if (groups_use_descendants() < 0)
		power_fail("cannot adopt the commands' children");
	port_add((int)fd);
}

int main(int argc, char **argv)
{
	token_set(unclaimed_token);
	if (getpid() == 1)
		boot();
	else if (argc == 2 && strcmp(argv[1], "--tsc-khz") == 0)
		return tsc_print();
	else
		use_socket(argc, argv);
	request_describe_kernel();
	serve_prepare();
	serve();
}
