"""Options of the commands that people wait for, read by hand.

argparse alone costs 20 ms to import, and dataclasses, which are avoided here too, 8.
"""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.codes import Code
from reconciler.errors import BoxError


class Usage(BoxError):
    """The command line is not one of ours."""

    code = Code.USAGE


_HELP = frozenset({"--help", "-h"})


class Parsed:
    """`values` by option name, each given value in order; a flag's value is ""."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.values: dict[str, list[str]] = {}
        self.name = ""
        self.command: list[str] = []
        self.asks_help = False

    def last(self, option: str) -> str | None:
        """The last value of an option, None without one."""
        given = self.values.get(option)
        return given[-1] if given else None

    def has(self, flag: str) -> bool:
        """Whether a flag was given."""
        return flag in self.values


def parse(verb: str, arguments: list[str], known: Mapping[str, bool]) -> Parsed:
    """Read `[OPTIONS] NAME [OPTIONS] [--] [COMMAND...]`; `known` maps options to "takes a value".

    Everything from the first word after NAME that is not an option, or after `--`, is the command.
    Raises Usage.
    """
    parsed = Parsed(verb)
    words = list(arguments)
    while words:
        word, *words = *_spread(words[0], known), *words[1:]
        if word == "--" or (parsed.name and (word == "-" or not word.startswith("-"))):
            parsed.command = words if word == "--" else [word, *words]
            break
        if not word.startswith("-") or word == "-":
            parsed.name = word
            continue
        option, equals, value = word.partition("=")
        if option in _HELP:
            parsed.asks_help = True
            continue
        if option not in known:
            raise Usage(f"box {verb} has no option {option}.", hint=f"box {verb} --help")
        if known[option] and not equals:
            if not words:
                raise Usage(f"{option} needs a value.", hint=f"box {verb} --help")
            value = words.pop(0)
        elif equals and not known[option]:
            raise Usage(f"{option} takes no value.", hint=f"box {verb} --help")
        parsed.values.setdefault(option, []).append(value)
    if not parsed.name and not parsed.asks_help:
        raise Usage("Which sandbox?", hint=f"box {verb} NAME, see `box {verb} --help`")
    return parsed


def _spread(word: str, known: Mapping[str, bool]) -> list[str]:
    """The word itself, or the flags that it joins: `-it`."""
    flags = [f"-{letter}" for letter in word[1:]] if word.startswith("-") else []
    return flags if flags and all(known.get(flag) is False for flag in flags) else [word]
