"""Text to Boxfile: what a user wrote, parsed once into a frozen type or refused with every problem.

Pure: bytes and names come in as arguments, no file is opened, no clock is read. Everything above
works on the types made here; nothing here knows how a sandbox is built or run. Imports only errors.
"""
