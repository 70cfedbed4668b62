"""The digest of a Boxfile: equal for equal meaning, whatever the text's order and comments."""

from __future__ import annotations

import hashlib
import json

from reconciler.boxfile.model import Boxfile


def digest(boxfile: Boxfile) -> str:
    """Return the SHA-256, in hex, of the Boxfile's JSON (sorted keys, with defaults)."""
    canonical = json.dumps(boxfile.model_dump(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
