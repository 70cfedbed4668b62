"""The public door for Python programs: `from reconciler.sdk import Sandbox`.

The pieces are in reconciler/surfaces/sdk; names that are not here may change. docs/sdk.md shows how
they are used.
"""

from __future__ import annotations

from reconciler.codes import Code
from reconciler.errors import (
    BoxError,
    Busy,
    DataHeld,
    FileRefused,
    Frozen,
    GuestFailed,
    Missing,
    NotAFile,
    NotConfined,
    NotFound,
    NotRunning,
    Refused,
    TimedOut,
    TooLarge,
)
from reconciler.surfaces.sdk.process import Process
from reconciler.surfaces.sdk.result import CommandFailed, Result
from reconciler.surfaces.sdk.sandbox import Sandbox

__all__ = [
    "BoxError",
    "Busy",
    "Code",
    "CommandFailed",
    "DataHeld",
    "FileRefused",
    "Frozen",
    "GuestFailed",
    "Missing",
    "NotAFile",
    "NotConfined",
    "NotFound",
    "NotRunning",
    "Process",
    "Refused",
    "Result",
    "Sandbox",
    "TimedOut",
    "TooLarge",
]
