#include "terminal.h"

#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

/* What a terminal that has no such character has in its place (POSIX: _POSIX_VDISABLE). */
#define DISABLED 0

static int pts_fd = -1;

int terminal_prepare(void)
{
	pts_fd = open("/dev/pts", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return pts_fd < 0 ? -1 : 0;
}

int terminal_open(int *ours, int *theirs, uint16_t rows, uint16_t columns)
{
	const int flags = O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC;
	int locked = 0;

	*ours = pts_fd >= 0 ? openat(pts_fd, "ptmx", flags) : open("/dev/ptmx", flags);
	if (*ours < 0 || ioctl(*ours, TIOCSPTLCK, &locked) < 0)
		return -1;
	/* By its master, not by a path: the guest may have mounted anything over it. */
	*theirs = ioctl(*ours, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*theirs < 0)
		return -1;
	terminal_resize(*ours, rows, columns);
	return 0;
}

void terminal_resize(int ours, uint16_t rows, uint16_t columns)
{
	const struct winsize size = { .ws_row = rows, .ws_col = columns };

	ioctl(ours, TIOCSWINSZ, &size);
}

int terminal_end_of_input(int ours)
{
	struct termios now;

	if (tcgetattr(ours, &now) < 0 || !(now.c_lflag & ICANON) || now.c_cc[VEOF] == DISABLED)
		return -1;
	return now.c_cc[VEOF];
}

int terminal_take(int theirs)
{
	return ioctl(theirs, TIOCSCTTY, 0);
}
