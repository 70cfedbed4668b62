#include "claim.h"

#include "kernel.h"
#include "sys.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#define ENTROPY_SIZE 64
#define MACHINE_ID_SIZE 16
#define DATA_DISK "/dev/vdb"
#define DATA_DIRECTORY "/data"
#define NANOSECONDS 1000000000

static int random_fd = -1;
static bool data_mounted;

int claim_open(void)
{
	random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
	return random_fd < 0 ? -1 : 0;
}

static bool is_hostname(const char *name, size_t length)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";

	for (size_t i = 0; i < length; i++) {
		if (!memchr(allowed, name[i], sizeof(allowed) - 1))
			return false;
	}
	return true;
}

int claim_read(const uint8_t *payload, size_t size, struct claim *claim)
{
	*claim = (struct claim){
		.token = payload,
		.entropy = payload + 32,
		.realtime_ns = (int64_t)get_u64(payload + 96),
		.machine_id = payload + 104,
		.flags = payload[120],
		.hostname_length = payload[121],
		.hostname = (const char *)payload + CLAIM_FIXED,
	};
	if (claim->hostname_length != size - CLAIM_FIXED)
		return EBADMSG;
	if (claim->realtime_ns < 0 || claim->flags > CLAIM_REHEARSE_DATA ||
	    !is_hostname(claim->hostname, claim->hostname_length))
		return EINVAL;
	return 0;
}

static int reseed(const uint8_t *entropy)
{
	struct rand_pool_info info = { .entropy_count = ENTROPY_SIZE * 8, .buf_size = ENTROPY_SIZE };
	int failed;

	memcpy(info.buf, entropy, ENTROPY_SIZE);
	failed = ioctl(random_fd, RNDADDENTROPY, &info) < 0 || ioctl(random_fd, RNDRESEEDCRNG) < 0;
	explicit_bzero(&info, sizeof(info));
	return failed ? -1 : 0;
}

static int set_clock(int64_t realtime_ns)
{
	struct timespec now = { .tv_sec = realtime_ns / NANOSECONDS, .tv_nsec = realtime_ns % NANOSECONDS };

	return clock_settime(CLOCK_REALTIME, &now);
}

static void set_machine_id(const uint8_t *id)
{
	static const char digits[] = "0123456789abcdef";
	char text[MACHINE_ID_SIZE * 2 + 2];

	for (size_t i = 0; i < MACHINE_ID_SIZE; i++) {
		text[2 * i] = digits[id[i] >> 4];
		text[2 * i + 1] = digits[id[i] & 15];
	}
	text[MACHINE_ID_SIZE * 2] = '\n';
	text[MACHINE_ID_SIZE * 2 + 1] = '\0';
	/* A read-only root keeps the one it has. */
	write_text("/etc/machine-id", text);
}

/* The disk was another one until just now, behind the kernel's back: what its buffers hold is not what
 * is on it. */
static int mount_data(void)
{
	AUTO_CLOSE int disk = open(DATA_DISK, O_RDONLY | O_CLOEXEC);

	if (disk < 0 || ioctl(disk, BLKFLSBUF, 0) < 0)
		return -1;
	if (mkdir(DATA_DIRECTORY, 0755) < 0 && errno != EEXIST)
		return -1;
	if (mount(DATA_DISK, DATA_DIRECTORY, "ext4", 0, "") < 0)
		return -1;
	data_mounted = true;
	return 0;
}

/* Emulated, whatever is done for the first time takes ten times as long. */
static int rehearse_data(void)
{
	if (mount_data() < 0)
		return -1;
	data_mounted = false;
	return umount2(DATA_DIRECTORY, 0);
}

const char *claim_apply(const struct claim *claim)
{
	if (random_fd < 0)
		return NULL;
	if (reseed(claim->entropy) < 0)
		return "cannot reseed the kernel's random numbers";
	if (set_clock(claim->realtime_ns) < 0)
		return "cannot set the clock";
	if (claim->hostname_length > 0 && sethostname(claim->hostname, claim->hostname_length) < 0)
		return "cannot set the host name";
	set_machine_id(claim->machine_id);
	if (claim->flags == CLAIM_MOUNT_DATA && !data_mounted && mount_data() < 0)
		return "cannot mount the /data disk";
	if (claim->flags == CLAIM_REHEARSE_DATA && !data_mounted && rehearse_data() < 0)
		return "cannot mount and unmount the disk";
	return NULL;
}
