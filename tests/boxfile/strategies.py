"""Any Boxfile that may exist, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from reconciler.boxfile.model import Blueprint, Boxfile, Mount, User, WriteFile

# Other (C: controls, surrogates, unassigned) never, except the format characters a user may mean.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=40)
TRICKY = st.sampled_from(
    ["no", "0027", "1e3", "22:22", "2024-01-01", "~", "", " a ", "- a", "a: b", "a #b", "*a", "<<"]
)
NAMES = st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True) | st.sampled_from(["NO", "y"])
SIZES = st.builds("{}{}".format, st.integers(16, 4096), st.sampled_from("MG"))
LINES = (TEXTS | TRICKY).filter(lambda text: text.strip(" "))
CONTENTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp"), include_characters="\t\n\r")
) | st.lists(LINES, max_size=4).map("\n".join)
# Parts of paths: anything but a slash and what climbs.
PARTS = (
    (TEXTS | TRICKY)
    .map(lambda text: text.replace("/", ""))
    .filter(lambda text: text not in {"", ".", ".."})
)
GUEST_PATHS = st.lists(PARTS, min_size=1, max_size=3).map(
    # Below a folder of its own, so that it is none of the guest's own.
    lambda parts: "/".join(["/srv", *parts])
)
HOST_PATHS = st.sampled_from(["/", "~", "~/a", "/a..b"]) | st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(["/", "~/"]),
    st.lists(PARTS, max_size=3),
)
SECCOMP_PATHS = st.sampled_from(["vmm.json", "/etc/box/a+b.json", "a.b/c@d.json", "1.0/x.json"])
MODES = st.from_regex("[0-7]{3,4}", fullmatch=True)
USER_NAMES = st.from_regex("[a-z_][a-z0-9_-]{0,31}", fullmatch=True).filter(
    lambda name: name != "root"
)
SHELLS = st.sampled_from(["/bin/sh", "/bin/bash", "/usr/local/bin/a.b_c-1"])

MOUNTS = st.builds(
    Mount,
    host=HOST_PATHS,
    guest=GUEST_PATHS,
    mode=st.sampled_from(["ro", "rw"]),
    follow_symlink=st.booleans(),
    risky=st.booleans(),
)


def apart(paths: list[str]) -> bool:
    """Whether no path is another one or lies in it."""
    folders = [f"{path}/" for path in paths]
    return not any(
        one.startswith(other) for one in folders for other in folders if one is not other
    )


def unmixed(mounts: list[Mount]) -> bool:
    """Whether no mount hides another."""
    return apart([mount.guest for mount in mounts])


USERS = st.builds(User, name=USER_NAMES, shell=SHELLS, sudo=st.booleans())
FILES = st.builds(WriteFile, path=GUEST_PATHS, content=CONTENTS, mode=MODES)
BLUEPRINTS = st.builds(
    Blueprint,
    users=st.lists(USERS, max_size=3, unique_by=lambda user: user.name),
    write_files=st.lists(FILES, max_size=3).filter(
        lambda files: apart([file.path for file in files])
    ),
    runcmd=st.lists(LINES, max_size=3),
)

# What bases may be, with package managers and names of packages that go with them.
_PACKAGES = {
    "apk": ["git", "g++", "git=2.45.2-r0", "git>=2", "git~2.45"],
    "apt": ["git", "libc6:arm64", "git=1:2.39.5-0+deb12u2", "python3.11"],
    "dnf": ["git", "gcc-c++", "git-2.45.2-1.fc40.x86_64"],
}
_BASES = [
    ("builtin:busybox", None, ""),
    ("oci-archive:/srv/images/debian 12.tar", None, ""),
    ("oci-archive:images/web.tar", "dnf", "dnf"),
    ("alpine", None, "apk"),
    ("localhost:5000/team/web:1.0", None, ""),
    ("localhost:5000/team/web:1.0", "apk", "apk"),
    ("docker.io/library/debian@sha256:" + "0" * 64, None, "apt"),
    ("docker.io/library/node:22-alpine", "apt", "apt"),
]


@st.composite
def _bases(draw: st.DrawFn) -> dict[str, object]:
    base, said, manager = draw(st.sampled_from(_BASES))
    names = _PACKAGES.get(manager, ())
    packages = draw(st.lists(st.sampled_from(names), max_size=3)) if names else []
    return {"base": base, "pkgmgr": said, "packages": packages}


@st.composite
def boxfiles(draw: st.DrawFn) -> Boxfile:
    """A Boxfile that loads: one that its backend can do and that breaks no rule."""
    backend = draw(st.sampled_from(["qemu", "firecracker", "krun", "podman"]))
    isolation = draw(st.sampled_from(["standard", "strict"]))
    shares = backend in {"krun", "podman"}
    mounts = draw(st.lists(MOUNTS, max_size=3).filter(unmixed)) if shares else []
    if isolation == "strict":
        mounts = [mount.model_copy(update={"mode": "ro"}) for mount in mounts]
    waits = backend != "qemu"
    return Boxfile.model_validate(
        {
            **draw(_bases()),
            "backend": backend,
            "isolation": isolation,
            "cpus": draw(st.integers(1, 16)),
            "ram_mib": draw(st.integers(128, 1 << 20)),
            "network": draw(st.sampled_from(["none", "bridge"])) if waits else "none",
            "passt": shares and draw(st.booleans()),
            "readonly": draw(st.booleans()),
            "timeout_seconds": draw(st.integers(0, 2_592_000)),
            "warm": draw(st.integers(0, 8)) if waits else 0,
            "warmup": draw(st.lists(LINES, max_size=3)) if waits else [],
            "run": draw(st.lists(LINES, max_size=3)),
            "env": draw(st.dictionaries(NAMES, TEXTS | TRICKY, max_size=4)),
            "mounts": mounts,
            "blueprint": draw(BLUEPRINTS),
            "seccomp": draw(st.none() | SECCOMP_PATHS) if shares else None,
            "data_size": draw(st.none() | SIZES),
            "state": draw(st.sampled_from(["running", "stopped", "built"])),
            "on_drift": draw(st.sampled_from(["alert", "freeze", "stop"])),
            "protect": draw(st.booleans()),
        }
    )


BOXFILES = boxfiles()
