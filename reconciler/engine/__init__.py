"""One sandbox, one pass: observe what is, plan what differs, apply it, say how it went.

Keyed by a sandbox's name and by nothing that is remembered: what to do is computed each time from
the declared spec and from what is really there. Twice is the same as once. Decides nothing about
when; knows nothing of who asks.
"""
