"""What forbids user namespaces on a host, by the name that its distribution gives it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.engine.host.namespaces import forbidding_setting


@pytest.mark.parametrize(
    ("files", "named"),
    [
        (
            {
                "kernel/apparmor_restrict_unprivileged_userns": "1\n",
                "user/max_user_namespaces": "63432\n",
            },
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        (
            {"kernel/unprivileged_userns_clone": "0\n", "user/max_user_namespaces": "63432\n"},
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        ),
        ({"user/max_user_namespaces": "0\n"}, "sudo sysctl -w user.max_user_namespaces=10000"),
        (
            {
                "kernel/apparmor_restrict_unprivileged_userns": "0\n",
                "kernel/unprivileged_userns_clone": "1\n",
                "user/max_user_namespaces": "63432\n",
            },
            "in a container: start it so that it may make user and mount namespaces",
        ),
    ],
    ids=["ubuntu2404", "debian", "none", "container"],
)
def test_the_setting_is_named(tmp_path: Path, files: dict[str, str], named: str) -> None:
    for name, text in files.items():
        path = tmp_path / "proc/sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert forbidding_setting(tmp_path) == named
