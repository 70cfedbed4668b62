"""The guest's first process and the channel to it.

`agent/` is the agent's C source and the protocol's description, `build` makes the binary,
`protocol` is the frames as pure functions over bytes, `channel` takes a port of a VM and speaks
with its agent, `transfer` moves a command's input and output, `sinks` is where the output goes.

Everything that comes from the guest is hostile here: bounds are checked before memory is used, and
a violation is a ProtocolError. Only the standard library is imported: `box exec` comes this way.
"""
