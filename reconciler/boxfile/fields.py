"""The types of a Boxfile's fields: each a rule for Python and the same rule for the schema."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from reconciler.boxfile import packages, paths
from reconciler.boxfile.bases import BASE_PATTERN, parse_base
from reconciler.boxfile.characters import (
    CONTROL_CHARACTERS,
    FILE_CONTROL_CHARACTERS,
    LINE_BREAKS,
    check_no_controls,
)
from reconciler.boxfile.sizes import SIZE_PATTERN, format_size, parse_size

ENV_NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_]{0,255}"
ENV_TOTAL_BYTES = 64 << 10
SMALLEST_DATA_BYTES = 16 << 20
LARGEST_DATA_BYTES = 16 << 40
MAX_ITEMS = 512
# useradd(8), as Debian and Fedora set it up.
USER_PATTERN = "[a-z_][a-z0-9_-]{0,31}"
MODE_PATTERN = "[0-7]{3,4}"


def _pattern(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^({pattern})$"})


def _version(value: object) -> object:
    # True and 1.0 are 1 to Python, and to pydantic's literals.
    if type(value) is not int:
        raise ValueError("is no version of the format")
    return value


def _base(text: str) -> str:
    parse_base(text)
    return text


def _data_size(text: str) -> str:
    size_bytes = parse_size(text)
    if not SMALLEST_DATA_BYTES <= size_bytes <= LARGEST_DATA_BYTES:
        smallest, largest = format_size(SMALLEST_DATA_BYTES), format_size(LARGEST_DATA_BYTES)
        raise ValueError(f"must be between {smallest} and {largest}")
    # 1024M and 1G are the same wish and must have the same digest.
    return format_size(size_bytes)


def _env_name(text: str) -> str:
    if not re.fullmatch(ENV_NAME_PATTERN, text):
        raise ValueError(
            "is no variable name: at most 256 letters, digits and _, not starting with a digit"
        )
    return text


def _env(variables: dict[str, str]) -> dict[str, str]:
    total = sum(len(name) + len(value.encode()) + 2 for name, value in variables.items())
    if total > ENV_TOTAL_BYTES:
        raise ValueError(f"takes {total} bytes; at most {ENV_TOTAL_BYTES} are allowed")
    return variables


def _line(text: str) -> str:
    if re.search(f"[{LINE_BREAKS}]", text):
        raise ValueError("must be one line; write one item of the list for each")
    check_no_controls(text)
    if not text.strip(" "):
        raise ValueError("is empty; write a shell command or remove the item")
    return text


def _content(text: str) -> str:
    if found := re.search(f"[{FILE_CONTROL_CHARACTERS}]", text):
        raise ValueError(f"must not contain the character U+{ord(found[0]):04X}")
    return text


def _user(text: str) -> str:
    if not re.fullmatch(USER_PATTERN, text):
        raise ValueError(
            "is no user name: 1 to 32 characters of a-z, 0-9, _ and -, starting with a letter or _"
        )
    if text == "root":
        raise ValueError("is there in every guest; name another user")
    return text


def _mode(text: str) -> str:
    if not re.fullmatch(MODE_PATTERN, text):
        raise ValueError('is no file mode: three or four octal digits in quotes, like "0644"')
    return text.rjust(4, "0")


_NO_CONTROLS = f"[^{CONTROL_CHARACTERS}]*"

Version = Annotated[Literal[1], BeforeValidator(_version)]
BaseReference = Annotated[str, AfterValidator(_base), _pattern(BASE_PATTERN)]
EnvName = Annotated[str, AfterValidator(_env_name), _pattern(ENV_NAME_PATTERN)]
EnvValue = Annotated[str, AfterValidator(check_no_controls), _pattern(_NO_CONTROLS)]
FileContent = Annotated[str, AfterValidator(_content), _pattern(f"[^{FILE_CONTROL_CHARACTERS}]*")]
GuestPath = Annotated[str, AfterValidator(paths.check_guest_path), _pattern(paths.GUEST_PATTERN)]
HostPath = Annotated[str, AfterValidator(paths.check_host_path), _pattern(paths.HOST_PATTERN)]
FileMode = Annotated[str, AfterValidator(_mode), _pattern(MODE_PATTERN)]
Package = Annotated[str, AfterValidator(packages.check_package), _pattern(packages.PACKAGE_PATTERN)]
Shell = Annotated[str, AfterValidator(paths.check_shell), _pattern(paths.SHELL_PATTERN)]
ShellLine = Annotated[str, AfterValidator(_line), _pattern(f"(?=.*[^ ])[^{CONTROL_CHARACTERS}]+")]
UserName = Annotated[str, AfterValidator(_user), _pattern(f"(?!root$){USER_PATTERN}")]
Packages = Annotated[list[Package], Field(max_length=MAX_ITEMS)]
ShellLines = Annotated[list[ShellLine], Field(max_length=MAX_ITEMS)]

# None only in Python, for "not said": the text has no way to write it.
DataSize = Annotated[Annotated[str, AfterValidator(_data_size)] | None, _pattern(SIZE_PATTERN)]
SeccompPath = Annotated[
    Annotated[str, AfterValidator(paths.check_seccomp_path)] | None,
    _pattern(paths.SECCOMP_PATTERN),
]
PackageManager = Annotated[
    Literal["apk", "apt", "dnf"] | None,
    WithJsonSchema({"type": "string", "enum": ["apk", "apt", "dnf"]}),
]
Env = Annotated[
    dict[EnvName, EnvValue],
    AfterValidator(_env),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": f"^({_NO_CONTROLS})$"},
            "propertyNames": {"pattern": f"^({ENV_NAME_PATTERN})$"},
        }
    ),
]
