"""From a recipe to a Containerfile and its build context: pure, the same bytes for the same recipe.

A user's text stands in two places only: as a JSON string in an instruction of exec form, which is
handed to execve(2) as it is, and as the content of a file whose name is ours. Nothing of it is
expanded, globbed or read by a shell before that (imagebuilder's and BuildKit's parsers; variables
are replaced in COPY, ENV and the like, never in RUN). No instruction has a --mount, and there is no
ARG, ENV, LABEL or ONBUILD.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.boxfile.characters import check_no_controls
from reconciler.boxfile.packages import check_package, package_fault
from reconciler.boxfile.paths import SHELL_PATTERN, check_guest_path
from reconciler.errors import Refused
from reconciler.images import build_scripts
from reconciler.images.base import Kind, resolve_base
from reconciler.images.build_scripts import STAGING

if TYPE_CHECKING:
    from reconciler.boxfile.recipe import NewFile, NewUser, Recipe

LOCAL_BASE = "localhost/box/base"
"""What FROM names for a base that podman does not know by a name."""

# Both parsers read lines with Go's bufio.Scanner, which takes at most 64 KiB.
_LINE_BYTES = 60_000
_ROOT = ("", "0", "root", "0:0", "root:root")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(:[A-Za-z0-9_][A-Za-z0-9_.-]*)?")
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MODE = re.compile(r"[0-7]{3,4}")
_REMOVE = f'RUN ["/bin/sh", "-c", "rm -rf {STAGING}"]'
# Mounted over while a RUN runs, so only COPY reaches the image's own.
_MOUNTED = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")


@dataclass(frozen=True, slots=True)
class BuildContext:
    """A Containerfile and its context: (name, content, mode), sorted.

    `titles` says for people what each instruction is for, in their order; "" for one that only goes
    with the one before.
    """

    containerfile: bytes
    files: tuple[tuple[str, bytes, int], ...]
    titles: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what is built, but for the base."""
        parts = [f"{len(self.containerfile)}\n".encode(), self.containerfile]
        for name, content, mode in self.files:
            parts += [f"{name} {mode:o} {len(content)}\n".encode(), content]
        return hashlib.sha256(b"".join(parts)).hexdigest()


def build_context(recipe: Recipe, user: str = "") -> BuildContext:
    """Render a recipe; `user` is what the base's configuration says, and the image keeps it.

    Raises ValueError for text that the Boxfile's model does not let through, and Refused for a
    base's user that cannot be an instruction's word or for too many packages.
    """
    draft = _Draft()
    draft.add(f"FROM {_from(recipe.base)}", "the base")
    draft.add("USER 0:0", "")
    if recipe.packages or recipe.users or recipe.files:
        # All of them, always: a user more must not be another first layer under the packages.
        draft.copy("scripts", build_scripts.SCRIPTS, STAGING, "")
        _add_packages(draft, recipe)
        _add_users(draft, recipe.users)
        _add_files(draft, recipe.files)
        draft.add(_REMOVE, "")
    for name, lines in (("run", recipe.run), ("runcmd", recipe.runcmd)):
        for number, line in enumerate(lines):
            _add_step(draft, line, f"{name}[{number}]: {line}")
    if user not in _ROOT:
        draft.add(f"USER {_base_user(user)}", "")
    return draft.finish()


def needs_network(recipe: Recipe) -> bool:
    """Whether a step of the recipe may want something from outside."""
    return bool(recipe.packages or recipe.run or recipe.runcmd)


@dataclass(slots=True)
class _Draft:
    lines: list[str] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def add(self, instruction: str, title: str) -> None:
        """Add one instruction: one line of printable ASCII, whatever came in."""
        check_no_controls(instruction)
        if not instruction.isascii() or instruction.endswith("\\"):
            raise ValueError(f"no instruction: {instruction!r}")
        if len(instruction) > _LINE_BYTES:
            raise Refused("a build step is too long", details=title[:200])
        self.lines.append(instruction)
        self.titles.append(title)

    def copy(self, folder: str, files: Mapping[str, str], target: str, title: str) -> None:
        """Put files into a folder of the context, and that into a directory of the image."""
        self.files |= {f"{folder}/{name}": text.encode() for name, text in files.items()}
        self.add(f"COPY {_json([f'{folder}/', f'{target}/'])}", title)

    def finish(self) -> BuildContext:
        """Return all of it, frozen."""
        text = "".join(f"{line}\n" for line in self.lines)
        files = tuple((name, data, 0o600) for name, data in sorted(self.files.items()))
        return BuildContext(text.encode("ascii"), files, tuple(self.titles))


def _from(base: str) -> str:
    reference = resolve_base(base)
    return reference.location if reference.kind is Kind.PODMAN else LOCAL_BASE


def _run(*words: str) -> str:
    return f"RUN {_json(words)}"


def _json(words: Iterable[str]) -> str:
    # "<<WORD" is looked for in whole lines by parsers that know here-documents.
    return json.dumps(list(words), ensure_ascii=True).replace("<", "\\u003c")


def _text(text: str) -> str:
    check_no_controls(text)
    text.encode("utf-8")  # a half of a surrogate pair is a ValueError too
    return text


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} does not match {pattern.pattern}")
    return text


def _base_user(user: str) -> str:
    if not _USER.fullmatch(user):
        raise Refused(f"the base's user {user!r} is neither a name nor a number")
    return user


def _add_packages(draft: _Draft, recipe: Recipe) -> None:
    if not recipe.packages:
        return
    if recipe.pkgmgr is None:
        raise ValueError("packages without a package manager")
    for name in recipe.packages:
        if fault := package_fault(check_package(name), recipe.pkgmgr):
            raise ValueError(f"{name!r} {fault}")
    # All at once, as they may depend on one another: no batches.
    draft.add(_script(recipe.pkgmgr, recipe.packages), f"packages: {' '.join(recipe.packages)}")


def _add_users(draft: _Draft, users: tuple[NewUser, ...]) -> None:
    shell = re.compile(SHELL_PATTERN)
    groups = [
        (_matching(_NAME, user.name), _matching(shell, user.shell), "yes" if user.sudo else "no")
        for user in users
    ]
    for batch in _batches(groups):
        draft.add(_script("users", batch), f"users: {' '.join(batch[::3])}")


def _add_files(draft: _Draft, files: tuple[NewFile, ...]) -> None:
    contents: dict[str, str] = {}
    groups = []
    for number, file in enumerate(files):
        mode = _matching(_MODE, file.mode)
        path = _text(check_guest_path(file.path))
        if path in _MOUNTED:
            draft.files[f"mounted/{number}"] = file.content.encode()
            words = _json([f"mounted/{number}", path])
            draft.add(f"COPY --chmod={mode} {words}", f"file: {path}")
        else:
            contents[str(number)] = file.content
            groups.append((str(number), mode, path))
    if contents:
        draft.copy("content", contents, f"{STAGING}/content", "")
    for batch in _batches(groups):
        draft.add(_script("files", batch), f"files: {' '.join(batch[2::3])}")


def _add_step(draft: _Draft, line: str, title: str) -> None:
    # After -c a word with a dash would be one more option of sh's.
    instruction = _run("/bin/sh", "-c", "--", _text(line))
    if len(instruction) <= _LINE_BYTES:
        draft.add(instruction, title)
        return
    draft.copy(f"step{len(draft.lines)}", {"step": f"{line}\n"}, STAGING, title)
    draft.add(_script("step", ()), title)
    draft.add(_REMOVE, title)


def _script(name: str, arguments: Iterable[str]) -> str:
    return _run("/bin/sh", f"{STAGING}/{name}", *arguments)


def _batches(groups: Iterable[tuple[str, ...]]) -> Iterable[tuple[str, ...]]:
    """Join arguments up to what one instruction takes."""
    batch: list[str] = []
    used = 0
    for group in groups:
        size = len(_json(group))
        if batch and used + size > _LINE_BYTES - 100:
            yield tuple(batch)
            batch, used = [], 0
        batch += group
        used += size
    if batch:
        yield tuple(batch)
