"""Keeps microVM sandboxes as declared: text in, confined VM out, proved from outside.

Layers, each importing only those after it: surfaces, controller, engine, backends, then images,
data, vmm and guest, then confinement and linux, then boxfile, then errors.
"""

from __future__ import annotations

__version__ = "0.1.0"
