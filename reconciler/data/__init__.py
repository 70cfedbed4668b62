"""/data: the one thing of a sandbox that outlives its VMs. Never lost, never trusted.

A disk image is made here once and from then on only handed, open, to a VM: nothing on the host
mounts it, probes it or believes what it holds.
"""
