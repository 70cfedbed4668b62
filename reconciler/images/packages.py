"""Where a distribution keeps a kernel for virtual machines, and how to get it unpacked.

One row a distribution. Every download goes through the package manager's own signature check, and
nothing is installed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import BoxError, Missing
from reconciler.images.progress import Progress
from reconciler.linux.process import CommandFailed, inherited, require_program, run

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_DOWNLOAD_SECONDS = 1800.0
_QUERY_SECONDS = 60.0
_UNPACK_SECONDS = 300.0
_KERNEL_PART = re.compile(r"linux-(image|modules|binary)-[0-9][a-z0-9.+-]*")
_RPM_SIGNED = ("--define", "_pkgverify_level all")


@dataclass(frozen=True)
class Distribution:
    """A row: `kernels` are package names, by `uname -m`, the first that is known is taken."""

    identifiers: frozenset[str]
    kernels: dict[str, tuple[str, ...]]
    unpack: Callable[[tuple[str, ...], Path, Progress], str]


def unpack_kernel(os_release: str, machine: str, directory: Path, progress: Progress) -> str:
    """Download this distribution's kernel and unpack it into `directory`; return its origin.

    `os_release` is the text of /etc/os-release, `machine` that of `uname -m`. Raises Missing when
    there is no row for them, no package manager or no package list, and CommandFailed.
    """
    identifiers = _identifiers(os_release)
    for identifier in identifiers:
        for row in DISTRIBUTIONS:
            if identifier in row.identifiers and machine in row.kernels:
                return row.unpack(row.kernels[machine], directory, progress)
    raise Missing(
        f"box does not know which package of this distribution holds a kernel for {machine}",
        details="/etc/os-release says: " + (" ".join(identifiers) or "nothing"),
        hint="set BOX_KERNEL to a kernel image, and BOX_KERNEL_MODULES to its modules",
    )


def apt_depends(package: str) -> list[str]:
    """Return the command that lists what `package` needs; it exits 0 for an unknown one too."""
    return ["apt-cache", "depends", "--important", package]


def apt_download(packages: tuple[str, ...]) -> list[str]:
    """Return the command that downloads `packages` into its working directory."""
    unsigned = "APT::Get::AllowUnauthenticated=false"
    return ["apt-get", "download", "-q", "-o", unsigned, *packages]


def dpkg_unpack(package: Path, directory: Path) -> list[str]:
    """Return the command that unpacks a .deb."""
    return ["dpkg-deb", "--extract", str(package), str(directory)]


def dnf_download(packages: tuple[str, ...], directory: Path) -> list[str]:
    """Return the command that downloads `packages` into `directory`."""
    return ["dnf", "download", "--destdir", str(directory), *packages]


def rpm_verify(packages: tuple[Path, ...]) -> list[str]:
    """Return the command that checks signatures: `dnf download` does not."""
    return ["rpmkeys", *_RPM_SIGNED, "--checksig", *(str(package) for package in packages)]


def rpm_unpack() -> list[str]:
    """Return the command that unpacks what rpm2cpio writes into its working directory."""
    return ["cpio", "--extract", "--make-directories", "--quiet", "--no-absolute-filenames"]


def _unpack_apt(kernels: tuple[str, ...], directory: Path, progress: Progress) -> str:
    require_program("apt-get", "apt")
    try:
        parts = _apt_parts(kernels)
        progress(f"downloading {', '.join(parts)}")
        _run(apt_download(parts), _DOWNLOAD_SECONDS, directory)
    except CommandFailed as error:
        error.hint = "sudo apt-get update"
        raise
    packages = sorted(directory.glob("*.deb"))
    for package in packages:
        _run(dpkg_unpack(package, directory), _UNPACK_SECONDS, directory)
    return " ".join(package.stem for package in packages)


def _apt_parts(kernels: tuple[str, ...]) -> tuple[str, ...]:
    for kernel in kernels:
        parts: list[str] = []
        pending = [kernel]
        while pending:
            for name in _apt_dependencies(pending.pop()):
                if _KERNEL_PART.fullmatch(name) and name not in parts:
                    parts.append(name)
                    pending.append(name)
        if parts:
            return tuple(parts)
    raise Missing(
        f"the package manager does not know {' or '.join(kernels)}", hint="sudo apt-get update"
    )


def _apt_dependencies(package: str) -> list[str]:
    output = _run(apt_depends(package), _QUERY_SECONDS, None, check=False).decode()
    return re.findall(r"^ [ |]Depends: (\S+)$", output, re.MULTILINE)


def _unpack_dnf(kernels: tuple[str, ...], directory: Path, progress: Progress) -> str:
    require_program("dnf", "dnf")
    require_program("rpm2cpio", "rpm")
    require_program("cpio", "cpio")
    progress(f"downloading {', '.join(kernels)}")
    _run(dnf_download(kernels, directory), _DOWNLOAD_SECONDS, directory)
    packages = tuple(sorted(directory.glob("*.rpm")))
    if not packages:
        raise BoxError("dnf downloaded nothing")
    _run(rpm_verify(packages), _UNPACK_SECONDS, directory)
    for package in packages:
        with package.with_suffix(".cpio").open("w+b") as archive:
            run(["rpm2cpio", package], stdout=archive.fileno(), timeout_seconds=_UNPACK_SECONDS)
            archive.seek(0)
            run(
                rpm_unpack(),
                stdin=archive.fileno(),
                cwd=directory,
                timeout_seconds=_UNPACK_SECONDS,
            )
    return " ".join(package.stem for package in packages)


def _run(argv: list[str], seconds: float, cwd: Path | None, *, check: bool = True) -> bytes:
    env = inherited(*_PROXIES)
    return run(argv, timeout_seconds=seconds, cwd=cwd, env=env, check=check).stdout


def _identifiers(os_release: str) -> tuple[str, ...]:
    values = dict(
        line.split("=", 1)
        for line in os_release.splitlines()
        if line.startswith(("ID=", "ID_LIKE="))
    )
    words = " ".join((values.get("ID", ""), values.get("ID_LIKE", "")))
    return tuple(words.replace('"', "").replace("'", "").split())


DISTRIBUTIONS = (
    Distribution(
        frozenset({"debian"}),
        {
            "x86_64": ("linux-image-cloud-amd64", "linux-image-amd64"),
            "aarch64": ("linux-image-cloud-arm64", "linux-image-arm64"),
        },
        _unpack_apt,
    ),
    Distribution(
        frozenset({"ubuntu"}),
        dict.fromkeys(("x86_64", "aarch64"), ("linux-image-virtual", "linux-image-kvm")),
        _unpack_apt,
    ),
    Distribution(
        frozenset({"fedora"}),
        dict.fromkeys(("x86_64", "aarch64"), ("kernel-core", "kernel-modules-core")),
        _unpack_dnf,
    ),
)
