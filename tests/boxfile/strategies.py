"""Any Boxfile that may exist, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from reconciler.boxfile.model import Boxfile

BASES = st.sampled_from(
    [
        "builtin:busybox",
        "oci-archive:/srv/images/debian 12.tar",
        "alpine",
        "localhost:5000/team/web:1.0",
        "docker.io/library/debian@sha256:" + "0" * 64,
    ]
)
# Other (C: controls, surrogates, unassigned) never, except the format characters a user may mean.
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Zl", "Zp")), max_size=40)
TRICKY = st.sampled_from(
    ["no", "0027", "1e3", "22:22", "2024-01-01", "~", "", " a ", "- a", "a: b", "a #b", "*a", "<<"]
)
NAMES = st.from_regex("[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True) | st.sampled_from(["NO", "y"])
SIZES = st.builds("{}{}".format, st.integers(16, 4096), st.sampled_from("MG"))

BOXFILES = st.builds(
    Boxfile,
    base=BASES,
    isolation=st.sampled_from(["standard", "strict"]),
    cpus=st.integers(1, 16),
    ram_mib=st.integers(128, 1 << 20),
    network=st.just("none"),
    readonly=st.booleans(),
    timeout_seconds=st.integers(0, 2_592_000),
    env=st.dictionaries(NAMES, TEXTS | TRICKY, max_size=4),
    data_size=st.none() | SIZES,
    state=st.sampled_from(["running", "stopped", "built"]),
    on_drift=st.sampled_from(["alert", "stop"]),
    protect=st.booleans(),
)
