from __future__ import annotations

import pytest

from reconciler.surfaces.cli.options import Usage, parse

KNOWN = {"--env": True, "-e": True, "-i": False, "--no-data": False}


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("web -- true", ["true"]),
        ("web true", ["true"]),
        ("web true -- x", ["true", "--", "x"]),
        ("web -- -- x", ["--", "x"]),
        ("web -- --env", ["--env"]),
        ("web sh -c -i", ["sh", "-c", "-i"]),
        ("web --", []),
        ("web", []),
    ],
)
def test_the_command_begins_after_the_name_or_two_dashes(words: str, command: list[str]) -> None:
    parsed = parse("run", words.split(), KNOWN)
    assert (parsed.name, parsed.command, parsed.values) == ("web", command, {})


@pytest.mark.parametrize(
    "words",
    [
        "--env A=1 -i web -- true",
        "-i web --env A=1 -- true",
        "web --env=A=1 -i true",
        "web -i --env A=1 -- true",
    ],
)
def test_options_stand_before_and_after_the_name(words: str) -> None:
    parsed = parse("run", words.split(), KNOWN)
    assert (parsed.name, parsed.command) == ("web", ["true"])
    assert parsed.values == {"--env": ["A=1"], "-i": [""]}
    assert parsed.has("-i")
    assert not parsed.has("--no-data")


def test_flags_of_one_letter_may_be_joined() -> None:
    known = {**KNOWN, "-t": False}
    parsed = parse("run", ["-it", "web", "-ti", "--", "-it"], known)
    assert parsed.values == {"-i": ["", ""], "-t": ["", ""]}
    assert parsed.command == ["-it"]


@pytest.mark.parametrize("word", ["-ie", "-ix", "-i-", "-iA=1"])
def test_what_is_not_all_flags_is_not_taken_apart(word: str) -> None:
    with pytest.raises(Usage, match="has no option"):
        parse("run", [word, "web"], KNOWN)


def test_a_name_and_a_command_that_end_in_letters_of_flags_are_not_taken_apart() -> None:
    known = {**KNOWN, "-t": False}
    parsed = parse("run", ["bit", "git", "status"], known)
    assert (parsed.name, parsed.command, parsed.values) == ("bit", ["git", "status"], {})


def test_every_value_of_an_option_is_kept_and_the_last_one_known() -> None:
    parsed = parse("run", ["--env", "A=1", "--env", "A=2", "--env=", "web"], KNOWN)
    assert parsed.values["--env"] == ["A=1", "A=2", ""]
    assert parsed.last("--env") == ""
    assert parsed.last("-e") is None


@pytest.mark.parametrize(
    ("words", "asks"),
    [("--help", True), ("-h", True), ("web -h", True), ("web -- -h", False), ("web a -h", False)],
)
def test_help_is_ours_only_before_the_command(words: str, *, asks: bool) -> None:
    assert parse("run", words.split(), KNOWN).asks_help is asks


def test_an_empty_argument_is_the_commands_own() -> None:
    assert parse("run", ["web", "--", "", "a b", "\n"], KNOWN).command == ["", "a b", "\n"]
    assert parse("run", ["web", "-e", "--", "--", "x"], KNOWN).values == {"-e": ["--"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Which sandbox"),
        (["--", "true"], "Which sandbox"),
        ([""], "Which sandbox"),
        (["web", "--other", "--", "true"], "no option --other"),
        (["--other=1", "web"], "no option --other"),
        (["-iv", "web"], "no option -iv"),
        (["web", "--env"], "--env needs a value"),
        (["web", "-i=1"], "-i takes no value"),
    ],
)
def test_what_is_no_command_line_of_ours(words: list[str], message: str) -> None:
    with pytest.raises(Usage, match=message) as caught:
        parse("run", words, KNOWN)
    assert caught.value.hint is not None
    assert "box run" in caught.value.hint
