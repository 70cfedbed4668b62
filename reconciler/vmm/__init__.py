"""Virtual machine monitors: their command lines and their control sockets.

Knows how to say what a VM is made of to QEMU and how to talk to a running one. Knows nothing of
sandboxes, jails or Boxfiles: everything comes in as file descriptors, paths inside the jail and
numbers.
"""
