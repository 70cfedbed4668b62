#include "devices.h"

#include "kernel.h"
#include "port.h"
#include "power.h"
#include "sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define MODULES "/modules"
#define PORT_CLASS "/sys/class/virtio-ports"
#define ROOT_DISK "/dev/vda"
#define DEADLINE_MS 60000
/* Events say when to look again; this is for one that was lost. */
#define RESCAN_MS 20

static int events_fd = -1;

static void load_module(const char *name)
{
	char path[320];
	AUTO_CLOSE int fd = -1;

	snprintf(path, sizeof(path), MODULES "/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
		power_fail(path);
	unlink(path);
}

static void watch_events(void)
{
	const struct sockaddr_nl address = { .nl_family = AF_NETLINK, .nl_groups = UEVENT_GROUP_KERNEL };

	events_fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
	if (events_fd < 0 || bind(events_fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		power_fail("cannot listen for device events");
}

void devices_load(void)
{
	static char order[8192];
	char *rest = order;

	watch_events();
	if (read_text(MODULES "/order", order, sizeof(order)) < 0)
		power_fail(MODULES "/order");
	for (char *name; (name = strsep(&rest, "\n"));) {
		if (*name)
			load_module(name);
	}
}

/* Waits for any event of a device, and takes all there are. */
static void wait_for_event(void)
{
	struct pollfd poll_fd = { .fd = events_fd, .events = POLLIN };
	char event[4096];

	poll(&poll_fd, 1, RESCAN_MS);
	while (read_some(events_fd, event, sizeof(event)) > 0)
		continue;
}

/* The number n of a port that is named box.n, or PORT_COUNT. */
static uint32_t port_number(const char *device)
{
	char path[320], name[64];
	uint32_t number;

	snprintf(path, sizeof(path), PORT_CLASS "/%s/name", device);
	if (read_text(path, name, sizeof(name)) < 0 || strncmp(name, "box.", 4) != 0)
		return PORT_COUNT;
	return parse_number(name + 4, PORT_COUNT - 1, &number) ? number : PORT_COUNT;
}

/* Opens the ports that are there and not open yet. Returns how many are open. */
static size_t open_ports(int fds[PORT_COUNT])
{
	DIR *directory = opendir(PORT_CLASS);
	size_t open_count = 0;
	char path[320];

	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		uint32_t number = *entry->d_name == '.' ? PORT_COUNT : port_number(entry->d_name);
		if (number == PORT_COUNT || fds[number] >= 0)
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fds[number] = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
	if (directory)
		closedir(directory);
	for (size_t i = 0; i < PORT_COUNT; i++)
		open_count += fds[i] >= 0;
	return open_count;
}

/* How many ports this machine has: the kernel's command line says so when they are fewer. */
static size_t ports_wanted(void)
{
	char line[4096];
	char *rest = line;
	uint32_t number = PORT_COUNT;

	if (read_text("/proc/cmdline", line, sizeof(line)) < 0)
		power_fail("/proc/cmdline");
	for (char *word; (word = strsep(&rest, " "));) {
		if (strncmp(word, "box.ports=", 10) == 0 &&
		    (!parse_number(word + 10, PORT_COUNT, &number) || number == 0))
			power_fail("box.ports");
	}
	return number;
}

void devices_wait(void)
{
	int64_t deadline = now_ms() + DEADLINE_MS;
	size_t wanted = ports_wanted();
	int fds[PORT_COUNT];

	memset(fds, -1, sizeof(fds));
	while (open_ports(fds) < wanted || access(ROOT_DISK, F_OK) < 0) {
		errno = ETIMEDOUT;
		if (now_ms() >= deadline)
			power_fail("no " ROOT_DISK ", or not all of the ports from box.0 on");
		wait_for_event();
	}
	for (size_t i = 0; i < PORT_COUNT; i++) {
		if (fds[i] >= 0)
			port_add(fds[i]);
	}
	close_fd(&events_fd);
}
