/* The agent as a plain process: not the first one of a machine, and the machine is not its own. */
#ifndef BOX_PLAIN_H
#define BOX_PLAIN_H

/* Takes the descriptors that the arguments name. Ends the process when they are not right. */
void plain_start(int argc, char **argv);

#endif
