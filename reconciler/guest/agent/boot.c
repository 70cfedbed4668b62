#include "boot.h"

#include "claim.h"
#include "devices.h"
#include "group.h"
#include "power.h"
#include "root.h"
#include "sys.h"
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>

/* linux/magic.h: what the kernel unpacks an initrd into. */
#define RAMFS_MAGIC 0x858458f6
#define TMPFS_MAGIC 0x01021994

/* As systemd's: select() breaks beyond 1024, who wants more raises it. */
#define FILES_SOFT 1024
#define FILES_HARD 524288

#define AGENT_NICE (-20)

/* The first process of a container is PID 1 too, and must not be taken for a guest's. */
static void check_initrd(void)
{
	struct statfs root;

	if (statfs("/", &root) < 0 || (root.f_type != RAMFS_MAGIC && root.f_type != TMPFS_MAGIC))
		_exit(1);
}

/* An initrd without /dev/console leaves these closed, and then any file could become one of them. */
static void open_stdio(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
		if (fd < 0)
			power_fail("/dev/null");
	} while (fd <= STDERR_FILENO);
	for (int i = 0; i <= STDERR_FILENO; i++)
		dup2(fd, i);
	close(fd);
}

static void bring_up_loopback(void)
{
	AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	if (fd >= 0)
		ioctl(fd, SIOCSIFFLAGS, &request);
}

static void raise_limits(void)
{
	const struct rlimit files = { .rlim_cur = FILES_SOFT, .rlim_max = FILES_HARD };

	setrlimit(RLIMIT_NOFILE, &files);
}

static void open_groups(void)
{
	AUTO_CLOSE int directory = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (directory < 0 || groups_open(directory) < 0)
		power_fail("cannot make cgroups");
}

void boot(void)
{
	check_initrd();
	umask(022);
	root_mount_kernel("");
	open_stdio();
	devices_load();
	devices_wait();
	root_enter();
	open_groups();
	if (claim_open() < 0)
		power_fail("/dev/urandom");
	if (terminal_prepare() < 0)
		power_fail("/dev/pts");
	bring_up_loopback();
	raise_limits();
	/* Time limits and hang-ups are noticed whatever the commands do to the processors. */
	setpriority(PRIO_PROCESS, 0, AGENT_NICE);
	/* But no command is interrupted for each small piece that it writes or reads. */
	set_policy(SCHED_BATCH);
	sethostname("box", 3);
}
