#include "power.h"

#include "command.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>

static bool is_init(void)
{
	return getpid() == 1;
}

void power_signal_all(int signo)
{
	for (size_t i = 0; i < port_count; i++) {
		if (signo == SIGKILL)
			group_kill(i);
		else
			command_signal(&ports[i], signo);
	}
	/* In a guest this is everything but the agent; on a host it would be everything of its user. */
	if (is_init())
		kill(-1, signo);
}

_Noreturn static void halt(void)
{
	/* Where the machine has no power switch, the VMM runs with -no-reboot. */
	reboot(RB_POWER_OFF);
	reboot(RB_AUTOBOOT);
	_exit(1);
}

void power_unmount(void)
{
	if (!is_init())
		return;
	sync();
	/* A mount over it, or a process that cannot be killed, keeps it busy. */
	if (umount2("/data", 0) < 0 && errno == EBUSY) {
		mount(NULL, "/data", NULL, MS_REMOUNT | MS_RDONLY, NULL);
		umount2("/data", MNT_DETACH);
		sync();
	}
}

_Noreturn void power_off(void)
{
	if (!is_init())
		_exit(0);
	power_unmount();
	halt();
}

_Noreturn void power_fail(const char *what)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "box-agent: %s: %s\n", what, strerror(errno));
	size_t size = min_size((size_t)length, sizeof(line) - 1);
	AUTO_CLOSE int console = -1;

	if (!is_init()) {
		write_some(STDERR_FILENO, line, size);
		_exit(1);
	}
	console = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
	write_some(console, line, size);
	halt();
}
