"""Backends: one file each turns a policy and a machine into a running, confined VMM.

A backend starts a VM, hands it its disk and token, and stops it; it is told everything and decides
nothing. `jail` renders the OCI spec that confines a VMM and runs it through the host's OCI runtime.
"""
