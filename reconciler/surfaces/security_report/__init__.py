"""The security report as a person reads it, as programs do, and two of them side by side."""
