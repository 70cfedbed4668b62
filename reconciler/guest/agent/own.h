/* The agent's own programs, which an EXEC runs in its child in place of a file of the image. */
#ifndef BOX_OWN_H
#define BOX_OWN_H

/* Becomes the program that arguments[0] names; the arguments end with NULL. */
_Noreturn void own_run(char *const arguments[]);

/* Says on stderr what is wrong with a file. */
void own_complain(const char *path, const char *reason);

/* The programs: each returns the exit status. */
int send_path(const char *path);
int receive_path(const char *path);
int list_processes(const char *proc);

#endif
