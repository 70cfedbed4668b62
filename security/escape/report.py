"""Prints a report of box as lines that a shell can read: `failed ID VERDICT`, `pid N`, `ID HAVE`.

report.py FILE   from `box inspect NAME -o json` or `box inspect NAME --security-report=json`
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_GOOD = frozenset({"same", "not_applicable"})


def _standing(value: dict[str, Any]) -> dict[str, Any]:
    """What the report says of the VM that is up: a security report tells of all of a sandbox's."""
    if "vms" not in value:
        return value
    found = [vm for vm in value["vms"] if vm["role"] == "standing" and vm["state"] == "up"]
    return found[0] if found else {}


def _main(path: str) -> None:
    vm = _standing(json.loads(Path(path).read_bytes()))
    if not vm.get("facts"):
        sys.exit("the report holds no facts")
    for fact in vm["facts"]:
        name = fact.get("id") or fact["promise"]
        if fact["verdict"] not in _GOOD:
            print("failed", name, fact["verdict"])
        print(name, str(fact["have"]).replace("\n", " "))
    print("pid", vm["pid"])


if __name__ == "__main__":
    _main(sys.argv[1])
