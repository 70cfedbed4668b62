/* How fast this host's time stamp counter ticks. */
#ifndef BOX_TSC_H
#define BOX_TSC_H

/* Prints kHz on stdout and returns 0; 1 where there is no such counter. Run on the host: an emulated
 * guest reads the host's counter, and has no other clock to measure it by. */
int tsc_print(void);

#endif
