"""Known holes of the programs that sandboxes rest on, and the versions that close them.

A floor is upstream's: distributions close holes without changing that number (`versions`). Each row
has its source, and says whether a hostile guest or Boxfile reaches the hole the way box uses the
program; what is not reached is a finding all the same, for whoever uses it another way too.
"""

from __future__ import annotations

from dataclasses import dataclass

Release = tuple[int, ...]


@dataclass(frozen=True)
class Floor:
    """One hole, or several closed at once.

    `fixed` are the first fixed releases, one a maintained branch: with (1, 2, 8) and (1, 3, 3)
    1.2.9 is fixed, 1.3.2 and 1.1.99 are not; what is on a later branch than all is fixed. `since`
    is the first release that has it. `reached` says whether box's own use is exposed, `why` how.
    """

    component: str
    cves: tuple[str, ...]
    what: str
    fixed: tuple[Release, ...]
    reached: bool
    why: str
    source: str
    since: Release = (0,)


FLOORS = (
    Floor(
        "runc",
        ("CVE-2024-21626",),
        "a directory of the host stays open in the container",
        ((1, 1, 12),),
        reached=False,
        why="box sets the working directory to /, and reads open files and root back",
        source="https://github.com/opencontainers/runc/security/advisories/GHSA-xr7r-f8xq-vfvv",
        since=(1, 0, 0),
    ),
    Floor(
        "runc",
        ("CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"),
        "an image's /dev, or a mount that containers share, redirects what runc mounts and writes",
        ((1, 2, 8), (1, 3, 3), (1, 4, 0)),
        reached=False,
        why="the jail has no image, no terminal and no shared mount",
        source="https://github.com/opencontainers/runc/security/advisories/GHSA-9493-h29p-rfm2",
    ),
    Floor(
        "runc",
        ("CVE-2026-41579",),
        "an image's link at /dev lets runc make files on the host",
        ((1, 3, 6), (1, 4, 3), (1, 5, 0)),
        reached=False,
        why="the jail has no image",
        source="https://github.com/opencontainers/runc/security/advisories/GHSA-xjvp-4fhw-gc47",
    ),
    Floor(
        "crun",
        ("CVE-2025-24965",),
        "the krun handler writes through an image's link to a file of the host",
        ((1, 20),),
        reached=False,
        why="box asks for no handler",
        source="https://github.com/containers/crun/security/advisories/GHSA-f42g-r5jj-qh4j",
    ),
    Floor(
        "crun",
        ("CVE-2026-47766",),
        "an image's link at /dev lets crun make files on the host",
        ((1, 28),),
        reached=False,
        why="the jail has no image",
        source="https://github.com/containers/crun/security/advisories/GHSA-7vwr-4279-7gq5",
    ),
    Floor(
        "crun",
        ("CVE-2026-88264", "CVE-2026-88265"),
        "an image's /dev/console or /dev/null that is a link redirects a mount",
        ((1, 30),),
        reached=False,
        why="the jail has no image, and a tmpfs at /dev",
        source="https://github.com/containers/crun/security/advisories/GHSA-j87h-qqch-77vc",
    ),
    Floor(
        "podman",
        ("CVE-2024-9407",),
        "a build's --mount names files of the host",
        ((5, 2, 4),),
        reached=False,
        why="no text of a Boxfile or a base reaches --mount",
        source="https://nvd.nist.gov/vuln/detail/CVE-2024-9407",
    ),
    Floor(
        "podman",
        ("CVE-2026-57231",),
        "an image's environment takes variables of the host's",
        ((5, 8, 4), (6, 0, 0)),
        reached=False,
        why="box gives podman an environment of its own making",
        source="https://github.com/containers/podman/security/advisories/GHSA-4hq8-gpf5-8p68",
    ),
    Floor(
        "qemu",
        ("CVE-2024-3446",),
        "a guest frees memory of QEMU's twice through virtio-serial, and may run code in it",
        ((7, 2, 11), (8, 2, 3), (9, 0, 0)),
        reached=True,
        why="the agent's channel is virtio-serial",
        source="https://lore.kernel.org/qemu-devel/20240409105537.18308-5-philmd@linaro.org/; "
        "the announcement of 8.2.3 and Debian's changelog of 7.2.11 list it",
    ),
    Floor(
        "qemu",
        ("CVE-2026-48914",),
        "a guest writes past a buffer of QEMU's by a SCSI request to virtio-blk",
        ((10, 0, 11), (11, 0, 2)),
        reached=False,
        why="it is told of devices with scsi=on, which box never sets",
        source="https://osv.dev/vulnerability/CVE-2026-48914",
    ),
)


def floors_of(component: str) -> tuple[Floor, ...]:
    """The rows of one program."""
    return tuple(each for each in FLOORS if each.component == component)


def is_fixed(floor: Floor, release: Release) -> bool:
    """Whether upstream's `release` is without it."""
    if release < floor.since:
        return True
    # The branch of a release is all but its last number; the last branch goes on for ever.
    newest = max(floor.fixed)
    if release >= newest:
        return True
    return any(release[: len(f) - 1] == f[:-1] and release >= f for f in floor.fixed)
