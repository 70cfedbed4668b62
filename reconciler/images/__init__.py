"""What a guest boots from, made without root and kept by content: kernel, initrd, root image.

Everything here ends as a file of mode 0444 below BOX_HOME that appears whole or not at all, so that
a build killed at any point is simply run again. What an image archive holds is hostile: it is
parsed within bounds and goes from one stream to another, and never becomes a file of the host's.
What a recipe adds to its base, the user's podman does, in its own storage.
"""
