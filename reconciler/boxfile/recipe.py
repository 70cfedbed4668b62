"""What a root image is built from: the part of a Boxfile that decides its contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PackageManager = Literal["apk", "apt", "dnf"]


@dataclass(frozen=True, slots=True)
class NewUser:
    """A user of the image; `sudo` is the right to become root without a password."""

    name: str
    shell: str = "/bin/sh"
    sudo: bool = False


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file of the image, owned by root; `mode` is octal, like chmod(1) takes it."""

    path: str
    content: str
    mode: str = "0644"


@dataclass(frozen=True, slots=True)
class Blueprint:
    """What is provisioned in an image, in the words of cloud-init."""

    users: tuple[NewUser, ...] = ()
    write_files: tuple[NewFile, ...] = ()
    runcmd: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """Applied to `base` in the order of the fields; `pkgmgr` is set when there are packages."""

    base: str
    pkgmgr: PackageManager | None = None
    packages: tuple[str, ...] = ()
    users: tuple[NewUser, ...] = ()
    files: tuple[NewFile, ...] = ()
    run: tuple[str, ...] = ()
    runcmd: tuple[str, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the image is the base, with nothing done to it."""
        return not (self.packages or self.users or self.files or self.run or self.runcmd)
