"""Which Boxfile a name on the command line means."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.boxfile.problems import printable
from reconciler.engine import records
from reconciler.engine.records import SandboxRecord
from reconciler.engine.spec import Spec
from reconciler.errors import NotFound, Refused
from reconciler.linux import files


def sandbox(home: Path, name: str) -> tuple[Spec, Path | None, str | None]:
    """The spec of sandbox `name`, its Boxfile and its watched folder, where known.

    The record's spec as long as its Boxfile is unchanged, which reads no YAML; else the file. A
    name without a record is looked for in the default folder. Raises NotFound, InvalidBoxfile.
    """
    try:
        record = records.sandbox_record(home, name)
    except files.BrokenFile as broken:
        try:
            path = _default_file(name)
        except NotFound:
            raise broken from None
        return load(name, path), path, None
    if record is None:
        path = _default_file(name)
        spec = load(name, path)
        records.keep_sandbox(
            home, SandboxRecord(name, spec, str(path), records.stamp(path), None, 0)
        )
        return spec, path, None
    source = Path(record.source) if record.source else None
    if source is None or records.stamp(source) in (record.source_stamp, ""):
        return record.spec, source, record.folder
    return load(name, source), source, record.folder


def load(name: str, path: Path) -> Spec:
    """Read one Boxfile. Raises InvalidBoxfile with every problem in it, Refused, OSError."""
    from reconciler.engine.declaration import NotRead, declare, read_file
    from reconciler.engine.trust import check_source

    try:
        check_source(path)
        data = read_file(path)
    except NotRead as error:
        raise Refused(f"{printable(str(path))} {error.brief}.") from error
    return declare(data, name=name, path=path)


def default_folder() -> Path:
    """BOX_DESIRED, else `desired` below the current directory."""
    return Path(os.environ.get("BOX_DESIRED") or "desired").absolute()


def _default_file(name: str) -> Path:
    from reconciler.boxfile.names import check_name

    check_name(name)
    folder = default_folder()
    for path in (folder / f"{name}.Boxfile", folder / name / "Boxfile"):
        if path.is_file():
            return path
    raise NotFound(
        f"There is no sandbox {name}.",
        details=f"neither known nor declared in {folder}",
        hint=f"write {folder / name}.Boxfile, or name its folder in BOX_DESIRED; `box ls` shows "
        "what is known",
    )
