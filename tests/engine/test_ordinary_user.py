"""An ordinary user from end to end: everything below the command line, with no root anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.linux.ordinary_user import OrdinaryUser, made

pytestmark = [pytest.mark.vm, pytest.mark.root]

SCRIPT = """
    import os
    from reconciler.engine import freezing, launching, passes, records
    from reconciler.engine.home import open_home
    from reconciler.engine.observe import observe
    from reconciler.engine.outcome import Done
    from reconciler.engine.security_report import report_of
    from reconciler.engine.spec import Spec
    from reconciler.guest import channel
    from reconciler.surfaces.security_report.document import document

    home = open_home()

    def declared(state):
        return Spec(
            name="web", base="builtin:busybox", backend="qemu", isolation={isolation!r}, cpus=1,
            ram_mib=256, network="none", readonly=False, timeout_seconds=0, env=(),
            data_size="16M", state=state, on_drift="alert", protect=False,
        )

    def converge(state):
        spec = declared(state)
        quiet = lambda _text: None
        outcome = passes.run_pass(home, "web", spec, source=None, folder=None, progress=quiet)
        assert isinstance(outcome, Done), outcome.error

    def execute(*command):
        vm = records.vm_record(home, "web")
        said = bytearray()
        with (
            channel.claim_port(vm.directory(home)) as sock,
            channel.Session(sock, bytes.fromhex(vm.token)) as session,
        ):
            session.exec(command, {{}}, stdin=None, stdout=said.extend, stderr=2)
        return said.decode().strip()

    def report():
        value = document(report_of(home, "web", lambda: declared("running")))
        (vm,) = value["vms"]
        account = vm["configuration"]["uid"] == os.getuid()
        return value["verdict"], account, account == vm["escape_is_your_account"]

    converge("running")
    seen = observe(home, "web")
    print([fact for fact in seen.facts if fact.failed], len(seen.facts) > 20)
    print(os.stat(f"/proc/{{seen.vm.identity.pid}}").st_uid == os.getuid())
    print(*report())
    print(execute("sh", "-c", "echo kept >/data/f; hostname"))
    freezing.freeze(home, seen.vm, ())
    frozen = observe(home, "web")
    print(frozen.frozen.stands, [fact for fact in frozen.facts if fact.failed])
    print(freezing.thaw(home, "web"), observe(home, "web").frozen, execute("echo", "goes on"))
    converge("stopped")
    print(*report())
    converge("running")
    print(execute("cat", "/data/f"))
    converge("stopped")
    print(os.listdir(home / "run"), os.listdir(home / "runtime"))
"""


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with made() as it:
        it.run("""
            from reconciler.engine.home import open_home
            from reconciler.images.kernel import fetch_kernel
            fetch_kernel(open_home(), lambda text: None)
        """)
        yield it


@pytest.mark.parametrize(("isolation", "as_the_user"), [("strict", "False"), ("standard", "True")])
def test_up_exec_down(user: OrdinaryUser, isolation: str, as_the_user: str) -> None:
    said = user.run(SCRIPT.format(isolation=isolation)).splitlines()
    reports = [f"{verdict} {as_the_user} True" for verdict in ("same", "not_read")]
    frozen = ["True []", "True None goes on"]
    assert said == ["[] True", as_the_user, reports[0], "web", *frozen, reports[1], "kept", "[] []"]
    # The data disk belongs to one isolation's sandbox: the next starts without.
    user.run("import shutil, pathlib; shutil.rmtree(pathlib.Path.home() / '.box/sandboxes')")
