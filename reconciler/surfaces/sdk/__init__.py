"""The Python surface: sandboxes for a program that is not ours.

Nothing here changes its process: no umask, no signal handler, no environment, no descriptor or
thread that outlives the call. No type of the engine is in a public signature, so that the same
names can be served over a socket. What starts VMs is imported when a VM is started.
"""
