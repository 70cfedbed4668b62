"""The host as a whole: what it lacks for sandboxes, how it gets that, whether each part works.

What is missing is data, a tuple of `Need`, found without changing anything. Only `setup` changes
the host, and nothing here asks anybody.
"""
