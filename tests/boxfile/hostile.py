"""Texts of full size that hang, kill or fill a careless reader, or take a way of their own."""

from __future__ import annotations

import string
from collections.abc import Callable

from reconciler.boxfile.parser import MAX_SCALAR
from reconciler.boxfile.text import MAX_BYTES

LEAST = "base: alpine\nnetwork: none\n"
KRUN = "base: alpine\nbackend: krun\n"
# More values and keys than these make a text end before any field is looked at.
MANY = 9_900
_HALF = MANY // 2
_THIRD = MANY // 3


def full(unit: str, head: str = LEAST, tail: str = "") -> bytes:
    """One unit, as often as it fits."""
    room = MAX_BYTES - len((head + tail).encode())
    return (head + unit * (room // len(unit.encode())) + tail).encode()


def counted(
    unit: Callable[[int], str], most: int = MAX_BYTES, head: str = LEAST, tail: str = ""
) -> bytes:
    """Units that differ, at most `most` and as many as fit."""
    parts = [head]
    room = MAX_BYTES - len((head + tail).encode())
    for number in range(most):
        part = unit(number)
        room -= len(part.encode())
        if room < 0:
            break
        parts.append(part)
    return ("".join(parts) + tail).encode()


def _short(number: int) -> str:
    """A number in few characters: libyaml compares each tag handle with all before it."""
    digits = string.digits + string.ascii_letters
    text = ""
    while number or not text:
        number, digit = divmod(number, len(digits))
        text += digits[digit]
    return text


def _units() -> dict[str, bytes]:
    """Nothing but one unit: most of them are no Boxfile from the first byte on."""
    units = {
        "brackets": "[",
        "braces": "{",
        "dashes": "- ",
        "questions": "? ",
        "colons": ": ",
        "commas": ", ",
        "nested maps": "a:\n ",
        "pairs in brackets": "[a: b],",
        "open quotes": '"',
        "apostrophes": "'",
        "backslashes": "\\",
        "percents": "%",
        "anchors": "&a ",
        "aliases": "*a ",
        "tags": "!a ",
        "tabs": "\t",
        "tabs after dashes": "- \t\n",
        "tabs in comments": "#\t\n",
        "comments": "# \n",
        "documents": "---\n",
        "document ends": "...\n",
        "merge keys": "<<: 1\n",
        "equal keys": "a: 1\n",
        "pipes": "|\n",
        "lines": "a\n",
        "blank lines": "\n",
        "carriage returns": "\r",
        "windows lines": "\r\n",
        "complex keys": "? [a]\n: b\n",
        "null keys": "? \n",
        "emoji": "😀",
        "accents": "é\n",
    }
    found = {}
    for name, unit in units.items():
        found[name] = full(unit, head="")
        found[f"{name} after fields"] = full(unit)
        found[f"{name} in brackets"] = full(unit, LEAST + "run: [", "]")
    return found


def _heads() -> dict[str, bytes]:
    return {
        "versions": full("%YAML 1.1\n", head=""),
        "equal tag handles": full("%TAG !a! t\n", head="", tail="---\n" + LEAST),
        "tag handles": counted(lambda n: f"%TAG !{_short(n)}! a\n", head="", tail="---\n" + LEAST),
        "unknown directives": full("%A\n", head="", tail="---\n" + LEAST),
        "directives of a second document": counted(
            lambda n: f"%TAG !{_short(n)}! a\n", head=LEAST + "...\n"
        ),
        "directives without an end": counted(lambda n: f"%TAG !{_short(n)}! a\n"),
        "bad last byte": full("a\r", tail="\0"),
        "tab at the end of many lines": full("\r", tail="A: b\tc"),
    }


def _keys() -> dict[str, bytes]:
    return {
        "unknown keys": counted(lambda n: f"k{n}: 1\n", _HALF),
        "too many unknown keys": counted(lambda n: f"k{n}: 1\n", 10_000),
        "nearly known keys": counted(lambda n: f"timeout_second{n}: 1\n", _HALF),
        "keys of 64 Ki": counted(lambda n: f"? {n:0{MAX_SCALAR - 8}}k\n: 1\n"),
        "keys of 64 Ki in a mount": counted(
            lambda n: f"  ? {n:0{MAX_SCALAR - 8}}k\n  : 1\n", head=KRUN + "mounts:\n- host: /\n"
        ),
        "keys of 1000": counted(lambda n: f"{n:01000}k: 1\n"),
        "number keys": counted(lambda n: f"{n + 1}: 1\n", _HALF),
        "long number keys": counted(lambda n: f"{n + 1}{'9' * 999}: 1\n"),
        "equal keys of 64 Ki": full(f"? {'k' * (MAX_SCALAR - 8)}\n: 1\n"),
        "flow keys": counted(lambda n: f"k{n},", _HALF, head="{base: alpine,", tail="}"),
        "list keys": counted(lambda n: f"? - a{n}\n: 1\n", _THIRD),
        "mapping keys": counted(lambda n: f"? {{a{n}: b}}\n: 1\n", MANY // 4),
        "nested keys": full("? ", tail="a"),
        "alias keys": counted(lambda _: " *a : 1\n", _HALF, head=LEAST + "env:\n &a A: x\n"),
        "blueprint keys": counted(lambda n: f"  k{n}: 1\n", _HALF, head=LEAST + "blueprint:\n"),
        "env names": counted(lambda n: f"  A{n}: x\n", _HALF, head=LEAST + "env:\n"),
        "bad env names": counted(lambda n: f"  {n}A: x\n", _HALF, head=LEAST + "env:\n"),
        "long env names": counted(
            lambda n: f"  A{'B' * 250}{n}: x\n", _HALF, head=LEAST + "env:\n"
        ),
        "env without values": counted(lambda n: f"  A{n}:\n", _HALF, head=LEAST + "env:\n"),
        "escapes in env": counted(lambda n: f'  A{n}: "\\n"\n', _HALF, head=LEAST + "env:\n"),
    }


def _lists() -> dict[str, bytes]:
    users, files = "blueprint:\n  users:\n", "blueprint:\n  write_files:\n"
    packages = KRUN + "packages:\n"
    return {
        "empty mounts": counted(lambda _: "- {}\n", 9_000, head=KRUN + "mounts:\n"),
        "text for mounts": counted(lambda _: "- x\n", 9_000, head=KRUN + "mounts:\n"),
        "bad mounts": counted(
            lambda _: "- {host: /, guest: x}\n", MANY // 5, head=KRUN + "mounts:\n"
        ),
        "equal mounts": counted(
            lambda _: "- {host: /, guest: /a}\n", MANY // 5, head=KRUN + "mounts:\n"
        ),
        "9000 equal mounts": counted(
            lambda _: "- {host: /, guest: /a}\n", 9_000, head=KRUN + "mounts:\n"
        ),
        "unknown keys of mounts": counted(
            lambda n: f"- {{k{n}: a}}\n", _THIRD, head=KRUN + "mounts:\n"
        ),
        "packages": counted(lambda n: f"- p{n}\n", 9_000, head=packages),
        "bad packages": counted(lambda n: f"- -p{n}\n", 9_000, head=packages),
        "numbers for packages": counted(lambda n: f"- {n}\n", 9_000, head=packages),
        "long packages": counted(lambda n: f"- {n}{'a-' * 120}\n", head=packages),
        "lines": counted(lambda n: f"- echo {n}\n", 9_000, head=KRUN + "run:\n"),
        "empty lines": counted(lambda _: "- ''\n", 9_000, head=KRUN + "run:\n"),
        "long lines": counted(lambda n: f"- echo {n} {'x ' * 30_000}\n", head=KRUN + "run:\n"),
        "users": counted(lambda n: f"  - {{name: u{n}}}\n", _THIRD, head=KRUN + users),
        "equal users": counted(lambda _: "  - {name: u}\n", _THIRD, head=KRUN + users),
        "bad users": counted(lambda n: f"  - {{name: {n}}}\n", _THIRD, head=KRUN + users),
        "files": counted(
            lambda n: f"  - {{path: /f{n}, content: x}}\n", MANY // 5, head=KRUN + files
        ),
        "equal files": counted(
            lambda _: "  - {path: /f, content: x}\n", MANY // 5, head=KRUN + files
        ),
        "anchors on values": counted(lambda n: f"- &a{n} x\n", MANY, head=KRUN + "run:\n"),
        "equal anchors": counted(lambda _: "- &a x\n", MANY, head=KRUN + "run:\n"),
        "aliases of one": counted(lambda _: "- *a\n", MANY, head=KRUN + "run:\n- &a x\n"),
        "tags on values": counted(lambda n: f"- !t{n} x\n", MANY, head=KRUN + "run:\n"),
        "escapes in tags": counted(lambda _: "- !%41%41%41 x\n", MANY, head=KRUN + "run:\n"),
        "one long line": counted(
            lambda n: f'"A{n}": "x", ', _HALF, head='{"base": "alpine", "env": {', tail="}}"
        ),
    }


def _wrong_places() -> dict[str, bytes]:
    """Deep and wide values where something else belongs."""
    found = {}
    for field in ("base", "cpus", "env", "packages", "mounts", "blueprint", "data_size", "state"):
        head = ("" if field == "base" else "base: alpine\n") + f"network: none\n{field}: "
        found[f"deep lists in {field}"] = counted(
            lambda _: "[" * 12 + "1" + "]" * 12 + ",", MANY // 13, head=head + "[", tail="]"
        )
        found[f"deep mappings in {field}"] = counted(
            lambda _: "{a: " * 12 + "1" + "}" * 12 + ",", MANY // 25, head=head + "[", tail="]"
        )
        found[f"mappings in {field}"] = counted(lambda n: f" k{n}: 1\n", _HALF, head=head + "\n")
        found[f"numbers in {field}"] = counted(lambda n: f" - {n}\n", MANY, head=head + "\n")
    deep = "".join(f"{'  ' * n}? {'k' * 12_000}\n{'  ' * n}:\n" for n in range(14))
    found["problems with long paths"] = counted(
        lambda _: "&a x,", MANY, head=LEAST + deep + " " * 30 + "[", tail="]"
    )
    return found


def _scalars() -> dict[str, bytes]:
    """Long texts, for the patterns that look at them, and ways to write them."""
    found = {
        "hex escapes": counted(lambda _: '"' + "\\x41" * 16_000 + '",', head=LEAST + "run: ["),
        "line escapes": counted(lambda _: '"' + "\\n" * 60_000 + '",', head=LEAST + "run: ["),
        "long escapes": counted(
            lambda _: '"' + "\\U0010FFFF" * 6_000 + '",', head=LEAST + "run: ["
        ),
        "bad escapes": full("\\UFFFFFFFF", LEAST + 'run: ["', '"]'),
        "continued lines": full("\\\n", LEAST + 'run: ["', '"]'),
        "lines in quotes": full("\n", LEAST + 'run: ["', '"]'),
        "carriage returns in quotes": full("\r", LEAST + 'run: ["', '"]'),
        "a literal": full(" a\n", LEAST + "run:\n- |\n"),
        "a literal with carriage returns": full(" a\r", LEAST + "run:\n- |\n"),
        "an empty literal": full("\n", LEAST + "run:\n- |\n"),
        "a folded text": full(" a\n", LEAST + "run:\n- >\n"),
        "lines of a plain text": full("  a\n", LEAST + "run:\n- a\n"),
        "a long anchor": full("a", LEAST + "run: &", " x\n"),
        "a long alias": full("a", LEAST + "run: *"),
        "a long tag": full("a", LEAST + "run: !", " x\n"),
        "a long escaped tag": full("%41", LEAST + "run: !", " x\n"),
        "a huge number": full("9", "base: "),
    }
    heads = {
        "base": "network: none\nbase: ",
        "archive": "network: none\nbase: oci-archive:",
        "size": LEAST + "data_size: ",
        "seccomp": KRUN + "seccomp: ",
        "package": KRUN + "packages:\n- ",
        "line": KRUN + "run:\n- ",
        "host": KRUN + "mounts:\n- guest: /x\n  host: ",
        "guest": KRUN + "mounts:\n- host: /\n  guest: /",
        "user": KRUN + "blueprint:\n  users:\n  - name: ",
        "shell": KRUN + "blueprint:\n  users:\n  - name: a\n    shell: /",
        "mode": KRUN + "blueprint:\n  write_files:\n  - path: /x\n    content: ''\n    mode: ",
        "env": LEAST + "env:\n  A: ",
        "env name": LEAST + "env:\n  ? ",
    }
    for name, head in heads.items():
        for unit in ("a", "a-", "a/", "0:0", "9_", "~/."):
            text = unit * (MAX_SCALAR // len(unit) - 1) + "!"
            found[f"{name} of {unit}"] = (head + text + "\n").encode()
    for unit in ("0:00", "9_9", "1.1", "2024-01-01 ", ".9", "0x9", "-9"):
        found[f"many of {unit}"] = full(f"- {unit * 20}!\n", KRUN + "run:\n")
    return found


HOSTILE = {**_units(), **_heads(), **_keys(), **_lists(), **_wrong_places(), **_scalars()}
