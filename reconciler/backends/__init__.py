"""Backends: one file each turns a policy and a machine into a running, confined VMM.

A backend starts a VM, hands it its disk and token, and stops it; it is told everything and decides
nothing. `oci` renders the spec that confines a VMM, `jail` runs it through the host's OCI runtime.
"""
