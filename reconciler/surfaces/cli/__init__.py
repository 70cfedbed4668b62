"""The command line. `main` picks the module that a command needs and imports no other."""
