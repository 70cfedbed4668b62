"""Facts and verbs of the kernel; nothing about sandboxes.

One thin function a call, constants with their source, OSError or a BoxError with the path. Parsers
of /proc are pure functions over bytes. Beside `reconciler.errors`, only plain data types of
`reconciler.confinement` are imported, which is itself pure.
"""
