from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.boxfile.recipe import NewFile, NewUser, Recipe
from reconciler.errors import Refused
from reconciler.images.build_scripts import SCRIPTS
from reconciler.images.containerfile import BuildContext, build_context, needs_network
from tests.images import dockerfile
from tests.images.dockerfile import Instruction

GOLDEN = Path(__file__).parent / "golden"
CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), "\u2028", "\u2029"]
HALF = "\ud800"

FULL = Recipe(
    base="docker.io/library/debian:12@sha256:" + "0a" * 32,
    pkgmgr="apt",
    packages=("g++", "git=1:2.39.5-0+deb12u2", "libc6:arm64"),
    users=(NewUser("dev", "/bin/bash", sudo=True), NewUser("_x-1")),
    files=(
        NewFile('/etc/app/a b\'s "$HOME" é.conf', "one\n\ttwo\r\n", "0600"),
        NewFile("/etc/hosts", "127.0.0.1 me\n"),
        NewFile("/usr/local/bin/tool", "#!/bin/sh\n", "755"),
    ),
    run=('echo "$(id)" `id` ${x} \\', "cat <<EOF # escape=`"),
    runcmd=("printf 'ünï\U0001f600'", '"], ["', "-x"),
)


def instructions(recipe: Recipe, user: str = "") -> list[Instruction]:
    return dockerfile.parse(build_context(recipe, user).containerfile)


def steps(recipe: Recipe) -> list[str]:
    """Return the lines that are run, as a shell gets them."""
    start = ("/bin/sh", "-c", "--")
    found = [one for one in instructions(recipe) if one.words[:3] == start]
    assert all(len(one.words) == 4 and one.is_json for one in found)
    return [one.words[3] for one in found]


@pytest.mark.parametrize(
    ("name", "recipe", "user"),
    [
        ("full", FULL, "node:1000"),
        ("busybox", Recipe("builtin:busybox", run=("true",)), ""),
        ("apk", Recipe("alpine:3.20", pkgmgr="apk", packages=("git", "py3-pip>=24")), "0"),
        ("dnf", Recipe("fedora:40", pkgmgr="dnf", packages=("git", "python3.12")), "root"),
    ],
)
def test_the_rendered_text_is_the_one_that_was_reviewed(
    name: str, recipe: Recipe, user: str
) -> None:
    rendered = build_context(recipe, user).containerfile
    path = GOLDEN / f"{name}.Containerfile"
    if os.environ.get("BOX_WRITE_GOLDEN"):
        path.write_bytes(rendered)
    assert rendered == path.read_bytes(), "look, then set BOX_WRITE_GOLDEN=1"


def test_the_order_is_the_promised_one() -> None:
    words = [one.words for one in instructions(FULL)]
    # What each instruction is known by, in order: packages, users, files, run, runcmd.
    marks = ["scripts/", "/.box-build/apt", "/.box-build/users", "mounted/1", "content/"]
    marks += ["/.box-build/files", "rm -rf /.box-build", *FULL.run, *FULL.runcmd]
    places = [next(n for n, line in enumerate(words) if mark in line) for mark in marks]
    assert places == sorted(places)
    assert len(words) == len(marks) + 2, "FROM and USER stand before"


def test_the_same_recipe_gives_the_same_bytes() -> None:
    again = Recipe(**{f.name: getattr(FULL, f.name) for f in dataclasses.fields(FULL)})
    assert build_context(again) == build_context(FULL)
    assert build_context(again).digest == build_context(FULL).digest


def test_every_field_changes_the_digest() -> None:
    digests = {build_context(FULL).digest, build_context(FULL, "node").digest}
    changes: list[dict[str, object]] = [
        {"base": "debian:13"},
        {"packages": ("g++",)},
        {"users": (NewUser("dev", "/bin/bash"), NewUser("_x-1"))},
        {"files": (NewFile("/a", "1"),)},
        {"files": (NewFile("/a", "2"),)},
        {"files": (NewFile("/a", "1", "0600"),)},
        {"run": ()},
        {"runcmd": ("a",)},
    ]
    for change in changes:
        digests.add(build_context(dataclasses.replace(FULL, **change)).digest)  # type: ignore[arg-type]
    assert len(digests) == len(changes) + 2


def test_contents_that_run_into_each_other_are_told_apart() -> None:
    def digest(*files: tuple[str, bytes, int]) -> str:
        return BuildContext(b"FROM x\n", files, ()).digest

    assert digest(("a", b"1", 0o600), ("b", b"", 0o600)) != digest(("a", b"1b 600 0\n", 0o600))
    assert digest(("a", b"1", 0o600)) != digest(("a", b"1", 0o700))


def text_fields(text: str) -> dict[str, Recipe]:
    """Return recipes with `text` in one field each."""
    base = "builtin:busybox"
    return {
        "base": Recipe(f"debian{text}x", run=("true",)),
        "packages": Recipe("debian", pkgmgr="apt", packages=(f"gi{text}t",)),
        "packages, apk": Recipe("alpine", pkgmgr="apk", packages=(f"gi{text}t",)),
        "packages, dnf": Recipe("fedora", pkgmgr="dnf", packages=(f"gi{text}t",)),
        "users.name": Recipe(base, users=(NewUser(f"de{text}v"),)),
        "users.shell": Recipe(base, users=(NewUser("dev", f"/bin/{text}sh"),)),
        "files.path": Recipe(base, files=(NewFile(f"/a{text}b", ""),)),
        "files.mode": Recipe(base, files=(NewFile("/a", "", f"064{text}4"),)),
        "run": Recipe(base, run=(f"echo {text}",)),
        "runcmd": Recipe(base, runcmd=(f"echo {text}",)),
    }


@pytest.mark.parametrize("field", text_fields(""))
@pytest.mark.parametrize("character", [*CONTROLS, HALF], ids=ascii)
def test_no_control_character_gets_through_any_field(field: str, character: str) -> None:
    for text in (character, f"{character}RUN id", f"x{character}"):
        with pytest.raises((ValueError, Refused)):
            build_context(text_fields(text)[field])


@pytest.mark.parametrize("field", text_fields(""))
def test_a_control_character_at_an_end_does_not_get_through_either(field: str) -> None:
    recipe = text_fields("")[field]
    assert instructions(recipe), "without one it is a good recipe"
    for character in CONTROLS:
        longer = {
            "base": dataclasses.replace(recipe, base=recipe.base + character),
            "packages": dataclasses.replace(recipe, packages=(f"git{character}",)),
            "users.name": dataclasses.replace(recipe, users=(NewUser(f"dev{character}"),)),
            "users.shell": dataclasses.replace(recipe, users=(NewUser("a", f"/b{character}"),)),
            "files.path": dataclasses.replace(recipe, files=(NewFile(f"/a{character}", ""),)),
            "files.mode": dataclasses.replace(
                recipe, files=(NewFile("/a", "", f"644{character}"),)
            ),
            "run": dataclasses.replace(recipe, run=(f"id{character}",)),
            "runcmd": dataclasses.replace(recipe, runcmd=(f"id{character}",)),
        }
        with pytest.raises((ValueError, Refused)):
            build_context(longer[field.partition(",")[0]])


@pytest.mark.parametrize(
    "name",
    [
        "-x",
        "--allow-unauthenticated",
        "git-",
        "$(id)",
        "a;b",
        "a b",
        "",
        "../x",
        "x.rpm",
        "a*",
        "@x",
    ],
)
@pytest.mark.parametrize("manager", ["apt", "apk", "dnf"])
def test_what_a_package_manager_would_take_for_more_than_a_name_is_refused(
    name: str, manager: str
) -> None:
    if name == "git-" and manager != "apt":
        return  # only apt removes what has a dash behind it
    with pytest.raises(ValueError, match="is no package name"):
        build_context(Recipe("x", pkgmgr=manager, packages=(name,)))  # type: ignore[arg-type]


def test_packages_need_a_manager() -> None:
    with pytest.raises(ValueError, match="without a package manager"):
        build_context(Recipe("debian", packages=("git",)))


@pytest.mark.parametrize("path", ["a", "/", "/a/../b", "/a/", "//a", "/data/x", "/proc/x", ""])
def test_a_path_that_is_none_of_a_guest_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"absolute|root|empty part|over or in"):
        build_context(Recipe("x", files=(NewFile(path, ""),)))


@pytest.mark.parametrize("user", ["$USER", "a b", "-x", "a\nRUN id", "a:b:c", '"a"', "é"])
def test_a_hostile_user_of_the_base_is_refused(user: str) -> None:
    with pytest.raises(Refused, match="neither a name nor a number"):
        build_context(Recipe("x", run=("true",)), user)


@pytest.mark.parametrize(
    "line",
    [
        '"], ["/bin/sh',
        '"]',
        "\\",
        "\\\\",
        "a \\ ",
        "# escape=`",
        "# syntax=evil/frontend",
        "<<EOF",
        "cat <<-'EOF'",
        "$(id)",
        "${x}",
        "`id`",
        "'",
        '"',
        "--mount=type=bind,source=/,target=/x id",
        "-e",
        "\u00e9\u4e2d\U0001f600\u202e\ufeff",
        "FROM scratch",
        " ",
        "",
        "x" * (60 << 10),
    ],
    ids=lambda line: ascii(line)[:30],
)
def test_a_hostile_line_reaches_the_shell_as_it_is_and_nothing_else(line: str) -> None:
    recipe = Recipe("builtin:busybox", run=(line, "true"), runcmd=(line,))
    plain = [one.name for one in instructions(Recipe("builtin:busybox", run=("a", "b", "c")))]
    found = instructions(recipe)
    long = len(line) > 1000
    if not long:
        assert steps(recipe) == [line, "true", line]
        assert [one.name for one in found] == plain
    else:
        assert steps(recipe) == ["true"]
        files = {name: data for name, data, _ in build_context(recipe).files}
        assert sorted(files.values()) == [f"{line}\n".encode()] * 2
        assert {one.name for one in found} == {"FROM", "USER", "COPY", "RUN"}


def test_a_long_line_is_told_from_a_short_one_by_what_a_builder_reads() -> None:
    for text in ("x", '"', "\u00e9"):
        for length in (9_000, 11_000, 30_000, 59_000, 60_500):
            recipe = Recipe("builtin:busybox", run=(text * length,))
            instructions(recipe)  # asserts that every line fits
            data = b"".join(data for _, data, _ in build_context(recipe).files)
            assert steps(recipe) == [text * length] or data == f"{text * length}\n".encode()


def test_two_long_lines_have_a_file_each() -> None:
    recipe = Recipe("builtin:busybox", run=("a" * 60_000, "b" * 60_000))
    context = build_context(recipe)
    assert sorted(data[:1] for _, data, _ in context.files) == [b"a", b"b"]


def test_many_users_and_files_are_shared_out_over_instructions() -> None:
    users = tuple(NewUser(f"user-{number}") for number in range(4000))
    files = tuple(NewFile(f"/{'é' * 300}/{number}", str(number)) for number in range(300))
    found = instructions(Recipe("builtin:busybox", users=users, files=files))
    given = [one.words[2:] for one in found if one.words[:2] == ("/bin/sh", "/.box-build/users")]
    assert len(given) > 1
    assert [word for words in given for word in words[::3]] == [user.name for user in users]
    given = [one.words[2:] for one in found if one.words[:2] == ("/bin/sh", "/.box-build/files")]
    assert len(given) > 1
    assert [word for words in given for word in words[2::3]] == [file.path for file in files]


def test_too_many_packages_are_refused_rather_than_cut() -> None:
    packages = tuple(f"package-{number}" for number in range(10_000))
    with pytest.raises(Refused, match="too long"):
        build_context(Recipe("debian", pkgmgr="apt", packages=packages))


def test_contents_are_files_with_names_of_ours() -> None:
    context = build_context(FULL)
    files = {name: data for name, data, _ in context.files}
    assert files["content/0"] == b"one\n\ttwo\r\n"
    assert files["mounted/1"] == b"127.0.0.1 me\n"
    assert files["content/2"] == b"#!/bin/sh\n"
    scripts = {f"scripts/{name}": text.encode() for name, text in SCRIPTS.items()}
    assert files == {**scripts, **{k: files[k] for k in ("content/0", "content/2", "mounted/1")}}
    assert [name for name, _, _ in context.files] == sorted(files)
    assert {mode for _, _, mode in context.files} == {0o600}


def test_there_is_a_title_for_every_instruction() -> None:
    context = build_context(FULL, "node")
    assert len(context.titles) == len(dockerfile.parse(context.containerfile))


def test_only_what_runs_something_needs_a_network() -> None:
    assert not needs_network(Recipe("x", users=(NewUser("a"),), files=(NewFile("/a", ""),)))
    assert needs_network(Recipe("x", pkgmgr="apk", packages=("git",)))
    assert needs_network(Recipe("x", run=("true",)))
    assert needs_network(Recipe("x", runcmd=("true",)))


LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=CONTROLS), max_size=40)
PARTS = LINES.filter(lambda part: part and "/" not in part and part not in {".", ".."})
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
MODES = st.from_regex(r"[0-7]{3,4}", fullmatch=True)
NAMES = st.from_regex(r"[a-z_][a-z0-9_-]{0,31}", fullmatch=True)
SHELLS = st.from_regex(r"(/[A-Za-z0-9_-]{1,9}){1,3}", fullmatch=True)
CONTENTS = st.text(st.characters(exclude_categories=["Cs"]))
USERS = st.builds(NewUser, NAMES, SHELLS, st.booleans())
FILES = st.builds(NewFile, PATHS.filter(lambda path: not path.startswith("/d")), CONTENTS, MODES)
RECIPES = st.builds(
    Recipe,
    base=st.sampled_from(["builtin:busybox", "oci-archive:/a b/$x.tar", "localhost/a/b:1"]),
    pkgmgr=st.sampled_from(["apk", "apt", "dnf"]),
    packages=st.lists(st.from_regex(r"[a-z0-9][a-z0-9+.]{1,9}[a-z]", fullmatch=True)).map(tuple),
    users=st.lists(USERS, max_size=3).map(tuple),
    files=st.lists(FILES, max_size=3).map(tuple),
    run=st.lists(LINES, max_size=3).map(tuple),
    runcmd=st.lists(LINES, max_size=3).map(tuple),
)


def expected(recipe: Recipe) -> list[Instruction]:
    """Say again, in other words, what a recipe has to become."""
    sh, staging = "/bin/sh", "/.box-build"

    def json(name: str, *words: str, flags: tuple[str, ...] = ()) -> Instruction:
        return Instruction(name, flags, words, is_json=True)

    def script(name: str, words: list[str]) -> list[Instruction]:
        return [json("RUN", sh, f"{staging}/{name}", *words)] if words else []

    local = recipe.base.startswith(("builtin:", "oci-archive:"))
    source = "localhost/box/base" if local else recipe.base
    found = [Instruction("FROM", (), (source,), is_json=False)]
    found.append(Instruction("USER", (), ("0:0",), is_json=False))
    users = [[user.name, user.shell, "yes" if user.sudo else "no"] for user in recipe.users]
    files = [[str(n), file.mode, file.path] for n, file in enumerate(recipe.files)]
    if recipe.packages or users or files:
        found.append(json("COPY", "scripts/", f"{staging}/"))
        found += script(str(recipe.pkgmgr), list(recipe.packages))
        found += script("users", [word for group in users for word in group])
        if files:
            found.append(json("COPY", "content/", f"{staging}/content/"))
        found += script("files", [word for group in files for word in group])
        found.append(json("RUN", sh, "-c", f"rm -rf {staging}"))
    return found + [json("RUN", sh, "-c", "--", line) for line in (*recipe.run, *recipe.runcmd)]


@given(RECIPES)
@pytest.mark.slow
def test_every_recipe_becomes_exactly_its_instructions(recipe: Recipe) -> None:
    context = build_context(recipe)
    assert dockerfile.parse(context.containerfile) == expected(recipe)
    assert context.containerfile.count(b"\n") == len(expected(recipe))
    contents = {name: data for name, data, _ in context.files if name.startswith("content/")}
    assert contents == {f"content/{n}": f.content.encode() for n, f in enumerate(recipe.files)}
