"""What an image says about how commands run in it, parsed once from its hostile JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reconciler.errors import BoxError

# An EXEC frame of the agent's protocol is 256 KiB, and the command has to fit beside this.
_ENVIRONMENT_LIMIT_BYTES = 128 << 10
_TEXT_LIMIT_BYTES = 4096


class BadConfig(BoxError):
    """The image's configuration cannot be passed on as it is."""


@dataclass(frozen=True)
class ImageConfig:
    """`env` is `NAME=value` words; `user` is as the image says, "" for root, resolved in the guest.

    Entrypoint and Cmd are not kept: box runs the command it is given.
    """

    env: tuple[str, ...] = field(default=())
    working_dir: str = "/"
    user: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return {"env": list(self.env), "user": self.user, "working_dir": self.working_dir}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ImageConfig:
        """Read what `as_json` wrote, from a file of ours."""
        return cls(tuple(value["env"]), value["working_dir"], value["user"])


def parse_oci_config(config: object) -> ImageConfig:
    """Return the ImageConfig of an OCI image's `config` object (image-spec config.md).

    Raises BadConfig for anything but text of a bounded length without NUL, a relative WorkingDir
    and an Env entry without a name.
    """
    if config is None:
        return ImageConfig()
    if not isinstance(config, dict):
        raise BadConfig("the image's config is not an object")
    env = config.get("Env") or []
    if not isinstance(env, list):
        raise BadConfig("the image's Env is not a list")
    words = tuple(_text("Env", word, _ENVIRONMENT_LIMIT_BYTES) for word in env)
    if sum(len(word.encode()) + 1 for word in words) > _ENVIRONMENT_LIMIT_BYTES:
        raise BadConfig(f"the image's Env is larger than {_ENVIRONMENT_LIMIT_BYTES} bytes")
    for word in words:
        if word.find("=") < 1:
            raise BadConfig("an entry of the image's Env is not NAME=value", details=repr(word))
    working_dir = _text("WorkingDir", config.get("WorkingDir") or "/", _TEXT_LIMIT_BYTES)
    if not working_dir.startswith("/"):
        raise BadConfig("the image's WorkingDir is not absolute", details=repr(working_dir))
    return ImageConfig(
        words, working_dir, _text("User", config.get("User") or "", _TEXT_LIMIT_BYTES)
    )


def _text(name: str, value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise BadConfig(f"the image's {name} is not text", details=repr(value)[:200])
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:  # JSON can spell half a character
        raise BadConfig(f"the image's {name} is not Unicode", details=repr(value)[:200]) from error
    if b"\0" in encoded or len(encoded) > limit:
        raise BadConfig(f"the image's {name} is too long or holds NUL", details=repr(value)[:200])
    return value
