/* The end: of every process, then of the VM. */
#ifndef BOX_POWER_H
#define BOX_POWER_H

/* Sends a signal to everything the commands started. */
void power_signal_all(int signo);

/* Writes everything out and takes /data down; nothing for a plain process. */
void power_unmount(void);

/* Ends the VM with its disks in order, or the process when it is a plain one. */
_Noreturn void power_off(void);

/* Says on the console what failed, with errno's text, and ends the VM: for set-up only, where there is
 * no client to tell. */
_Noreturn void power_fail(const char *what);

#endif
