"""Bring what is missing. Whatever breaks it off, the next run goes on from there."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from reconciler.engine.host import needs, packages
from reconciler.engine.host.need import Account, Need, NeedKind
from reconciler.engine.host.packages import PackageManager
from reconciler.engine.parts import Progress
from reconciler.errors import Missing, Refused
from reconciler.guest import build
from reconciler.images import kernel
from reconciler.linux import delegation, files, process, scopes

_LOCK = Path("/run/box-setup.lock")
_LOCK_SECONDS = 900.0
_NETWORK_SECONDS = 1800.0
_INSTALL_SECONDS = 3600.0
_USERMOD_SECONDS = 60.0
_MANAGER_SECONDS = 60.0
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def set_up_host(
    account: Account,
    *,
    slots: int,
    progress: Progress,
    kinds: frozenset[NeedKind] = frozenset(NeedKind),
) -> tuple[Need, ...]:
    """As root: meet the host needs of `account`, those of `kinds`, and return which there were.

    One at a time on a host: two that give out subordinate IDs would give the same. Raises
    Refused unless root, Missing when something is still missing afterwards, CommandFailed.
    """
    if os.geteuid() != 0:
        raise Refused("Setting up the host takes root.", hint="run it with sudo")
    with files.locked(_LOCK, timeout_seconds=_LOCK_SECONDS):
        manager = packages.find_manager()
        lists = NeedKind.PACKAGE_LISTS in kinds
        if lists and manager is not None and not packages.knows_packages(manager):
            refresh_lists(manager, progress)
        met = _wanted(account, slots, kinds)
        for need in met:
            _HOST[need.kind](need, account, progress)
        left = _wanted(account, slots, kinds) if met else ()
    if left:
        raise Missing(
            "The host still lacks something after it was set up.",
            details="\n".join(f"{need.what} ({need.why})" for need in left),
            hint="box doctor",
        )
    return met


def _wanted(account: Account, slots: int, kinds: frozenset[NeedKind]) -> tuple[Need, ...]:
    found = needs.host_needs(account, slots=slots)
    return tuple(need for need in found if need.kind in kinds)


def refresh_lists(manager: PackageManager, progress: Progress) -> None:
    """As root: fetch the package lists. Raises CommandFailed."""
    progress("fetching the package lists")
    _run(manager.refresh, _NETWORK_SECONDS)


def set_up_home(account: Account, home: Path, progress: Progress) -> None:
    """Meet the needs that take no root: the guest's kernel and agent."""
    for need in needs.home_needs(account, home):
        if need.kind is NeedKind.KERNEL:
            _fetch_kernel(home, progress)
        else:
            _build_agent(need, account, progress)


def _fetch_kernel(home: Path, progress: Progress) -> None:
    manager = packages.find_manager()
    try:
        kernel.fetch_kernel(home, progress)
    except (process.CommandFailed, Missing):
        # Old lists name a kernel that is no longer there; only root may fetch new ones.
        if manager is None or os.geteuid() != 0:
            raise
        refresh_lists(manager, progress)
        kernel.fetch_kernel(home, progress)


def _install(need: Need, _account: Account, progress: Progress) -> None:
    manager = packages.find_manager()
    if manager is None:
        raise Missing(
            "box knows neither apt-get nor dnf here.",
            details=f"missing: {need.why}",
            hint="install these with your package manager, then go on",
        )
    for command in manager.repair:
        progress("finishing an installation that was broken off")
        _unbroken(command, progress)
    progress(f"downloading {need.what}")
    download = (*manager.download, *need.packages)
    try:
        _run(download, _NETWORK_SECONDS)
    except process.CommandFailed:
        # Old lists name packages that are no longer there.
        refresh_lists(manager, progress)
        _run(download, _NETWORK_SECONDS)
    progress("installing")
    _unbroken((*manager.install, *need.packages), progress)


def _unbroken(command: Sequence[str], progress: Progress) -> None:
    """Run a command to its end: a package manager that is killed leaves the host half-installed."""
    with _deferring_interrupts(lambda: progress("ending after this installation")):
        _run(command, _INSTALL_SECONDS)


@contextlib.contextmanager
def _deferring_interrupts(tell: Callable[[], None]) -> Iterator[None]:
    seen = []

    def note(signo: int, _frame: FrameType | None) -> None:
        seen.append(signo)
        tell()

    heard = [each for each in _INTERRUPTS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {signo: signal.signal(signo, note) for signo in heard}
    try:
        yield
    finally:
        for signo, old in before.items():
            signal.signal(signo, old)
    if seen:
        raise KeyboardInterrupt(seen[0])


def _run(command: Sequence[str], timeout_seconds: float) -> None:
    env = {"DEBIAN_FRONTEND": "noninteractive", **process.inherited(*_PROXIES)}
    process.run(command, timeout_seconds=timeout_seconds, env=env)


def _add_ids(need: Need, account: Account, progress: Progress) -> None:
    progress(f"giving {account.name} subordinate IDs")
    for command in need.fix:
        process.run(command, timeout_seconds=_USERMOD_SECONDS)


def _delegate(need: Need, account: Account, progress: Progress) -> None:
    if scopes.can_have_manager():
        progress(f"starting systemd's user manager for {account.name}")
        for command in need.fix:
            process.run(command, timeout_seconds=_MANAGER_SECONDS)
        return
    parent = delegation.parent_of(account.uid)
    progress(f"giving {account.name} the cgroup {parent}")
    delegation.make_delegation(parent, account.uid, account.gid)


def _build_agent(_need: Need, _account: Account, progress: Progress) -> None:
    progress("compiling the guest's agent")
    build.find_agent()


_HOST = {
    NeedKind.PACKAGES: _install,
    NeedKind.SUBORDINATE_IDS: _add_ids,
    NeedKind.CGROUPS: _delegate,
    NeedKind.AGENT: _build_agent,
}
