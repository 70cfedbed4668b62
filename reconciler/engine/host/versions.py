"""Whether the programs in use are above the floors: by number, and by what their package says.

A distribution closes a hole and keeps upstream's number; its changelog, on this disk, names it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from reconciler.engine.host import floors
from reconciler.engine.host.check import Seen, failed, finding, not_applicable, ok
from reconciler.engine.host.floors import Floor, Release
from reconciler.engine.host.trying import Tries
from reconciler.linux import process

_CHANGELOG_BYTES = 8 << 20
_NUMBER = re.compile(r"\b(\d{1,6}(?:\.\d{1,6}){1,3})(?:[-~]?(rc)[.\d]*)?")
_DOCUMENTATION = Path("/usr/share/doc")


@dataclass(frozen=True)
class Package:
    """The package that a program is of. `changelog` is its text, None when it is not on this disk.

    `update` is the command that brings its newest version.
    """

    name: str
    changelog: str | None
    update: str


def parse_release(said: str) -> Release | None:
    """The release in the first line of what `--version` printed; None when there is none.

    One that is not released yet (rc) counts as the one before.
    """
    line = said.partition("\n")[0]
    found = _NUMBER.search(line)
    if found is None:
        return None
    release = tuple(map(int, found[1].split(".")))
    return (*release[:-1], release[-1] - 1) if found[2] else release


def judge(component: str, said: str, package: Package | None) -> Seen:
    """How a program in use does: `said` is what `--version` printed."""
    release = parse_release(said)
    version = said.partition("\n")[0].strip()[:120]
    if release is None:
        return finding(
            f"{component} does not tell its version: {version!r}",
            f"install your distribution's own {component}",
        )
    below = [each for each in floors.floors_of(component) if not floors.is_fixed(each, release)]
    log = (package.changelog if package else None) or ""
    left = [each for each in below if not all(cve in log for cve in each.cves)]
    if not left:
        named = " ".join(cve for each in below for cve in each.cves)
        return ok(f"{version}{f'; its changelog names {named}' if named else ''}")
    told = "; ".join(_told(each) for each in left)
    if package is None:
        found = f"{version}, of no package: {told}"
        fix = f"put your distribution's {component} in its place, or a release that has it closed"
        return failed(found, fix) if any(each.reached for each in left) else finding(found, fix)
    unnamed = f"{package.name}'s changelog names no fix" if log else "its changelog is not here"
    return finding(
        f"{version}: {told}. Your distribution may have closed it all the same; {unnamed}",
        f"{package.update}; where that brings nothing, ask your distribution about it",
    )


def _told(floor: Floor) -> str:
    fixed = ", ".join(".".join(map(str, each)) for each in floor.fixed)
    about = f"{' '.join(floor.cves)}, closed upstream in {fixed}"
    if not floor.reached:
        return f"{about} (box is not exposed)"
    return f"{about}: {floor.what}; box is exposed, {floor.why}"


def look(component: str, program: Path | None, tries: Tries, *, used: bool) -> Seen:
    """Ask an installed program for its version, and its package for what was closed in it."""
    if program is None:
        return not_applicable(f"{component} is not installed")
    if not used:
        return not_applicable(f"{program} is installed, and box does not use it here")
    said = tries.run(program, "--version").stdout
    return judge(component, said.decode(errors="replace"), package_of(program, tries))


def package_of(program: Path, tries: Tries, documentation: Path = _DOCUMENTATION) -> Package | None:
    """The distribution's package of a program; None for one that came otherwise."""
    dpkg = process.find_program("dpkg-query")
    if dpkg is not None:
        done = tries.run(dpkg, "-S", program, check=False)
        name = done.stdout.decode(errors="replace").partition(":")[0].split(",")[0].strip()
        if done.returncode == 0 and name:
            update = f"sudo apt-get update && sudo apt-get install --only-upgrade {name}"
            return Package(name, debian_changelog(documentation / name), update)
    rpm = process.find_program("rpm")
    if rpm is None:
        return None
    done = tries.run(rpm, "-qf", "--queryformat", "%{NAME}\n", program, check=False)
    if done.returncode != 0:
        return None
    name = done.stdout.decode(errors="replace").split()[0]
    log = tries.run(rpm, "-q", "--changelog", name, check=False)
    text = log.stdout.decode(errors="replace") if log.returncode == 0 else None
    return Package(name, text, f"sudo dnf upgrade {name}")


def debian_changelog(directory: Path) -> str | None:
    """The changelog that a Debian package brings, at most its first 8 MiB."""
    for name in ("changelog.Debian.gz", "changelog.gz"):
        try:
            with gzip.open(directory / name) as file:
                return file.read(_CHANGELOG_BYTES).decode(errors="replace")
        except (OSError, EOFError, zlib.error):
            continue
    return None
