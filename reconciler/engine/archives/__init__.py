"""Tar streams between a guest and the host's files: what `box cp` moves.

What comes from a guest is hostile, and nothing here follows a link of it: `unpacking` makes files
of a stream in a fresh directory, or refuses all of it; `placing` puts them where they belong once
they are whole. `packing` makes a stream of the host's files, `relaying` a safe one of any, `pipes`
is what streams go through.
"""
