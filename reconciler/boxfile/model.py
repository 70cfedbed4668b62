"""The Boxfile: what one sandbox shall be."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from reconciler.boxfile.bases import BASE_PATTERN, parse_base
from reconciler.boxfile.sizes import SIZE_PATTERN, format_size, parse_size

ENV_NAME_PATTERN = "[A-Za-z_][A-Za-z0-9_]{0,255}"
ENV_TOTAL_BYTES = 64 << 10
SMALLEST_DATA_BYTES = 16 << 20
LARGEST_DATA_BYTES = 16 << 40

# Line breaks, escapes and the NUL: in a scalar that reaches a command line, a file format or a
# guest each of them can become a second instruction.
CONTROL_CHARACTERS = r"\x00-\x1f\x7f-\x9f\u2028\u2029"


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
        raise ValueError("is no variable name: letters, digits and _, not starting with a digit")
    return text


def _env_value(text: str) -> str:
    if re.search(f"[{CONTROL_CHARACTERS}]", text):
        raise ValueError("must not contain control characters or line breaks")
    return text


def _env(variables: dict[str, str]) -> dict[str, str]:
    total = sum(len(name) + len(value.encode()) + 2 for name, value in variables.items())
    if total > ENV_TOTAL_BYTES:
        raise ValueError(f"takes {total} bytes; at most {ENV_TOTAL_BYTES} are allowed")
    return variables


def _default_on_drift(data: dict[str, Any]) -> Literal["alert", "stop"]:
    return "stop" if data.get("isolation") == "strict" else "alert"


def _without_default(schema: dict[str, Any]) -> None:
    del schema["default"]


BaseReference = Annotated[
    str,
    AfterValidator(_base),
    WithJsonSchema({"type": "string", "pattern": f"^({BASE_PATTERN})$"}),
]
# None only in Python, for "not said": the text has no way to write it.
DataSize = Annotated[
    Annotated[str, AfterValidator(_data_size)] | None,
    WithJsonSchema({"type": "string", "pattern": f"^{SIZE_PATTERN}$"}),
]
EnvName = Annotated[
    str,
    AfterValidator(_env_name),
    WithJsonSchema({"type": "string", "pattern": f"^{ENV_NAME_PATTERN}$"}),
]
EnvValue = Annotated[
    str,
    AfterValidator(_env_value),
    WithJsonSchema({"type": "string", "pattern": f"^[^{CONTROL_CHARACTERS}]*$"}),
]
Env = Annotated[
    dict[EnvName, EnvValue],
    AfterValidator(_env),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"type": "string", "pattern": f"^[^{CONTROL_CHARACTERS}]*$"},
            "propertyNames": {"pattern": f"^{ENV_NAME_PATTERN}$"},
        }
    ),
]


class Boxfile(BaseModel):
    """One sandbox as declared. Its name is its file's: `NAME.Boxfile` or `NAME/Boxfile`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    version: Literal[1] = Field(
        default=1, description="Version of the Boxfile format.", examples=[1]
    )
    base: BaseReference = Field(
        description="What the root image is made from: builtin:busybox (needs no download), "
        "oci-archive:PATH, or an image reference of local podman storage.",
        examples=["builtin:busybox", "oci-archive:images/debian.tar", "docker.io/library/alpine:3"],
    )
    backend: Literal["qemu"] = Field(
        default="qemu", description="What runs the microVM.", examples=["qemu"]
    )
    isolation: Literal["standard", "strict"] = Field(
        default="standard",
        description="Whose host UID the VMM has: standard is your own, strict is one that owns "
        "nothing of yours and nothing of any other sandbox's.",
        examples=["strict"],
    )
    cpus: Annotated[int, Field(ge=1, le=16)] = Field(
        default=2, description="Number of virtual CPUs.", examples=[1]
    )
    ram_mib: Annotated[int, Field(ge=128, le=1 << 20)] = Field(
        default=2048,
        description="Memory of the guest in MiB. The VMM as a whole may use 256 MiB more.",
        examples=[512],
    )
    network: Literal["none"] = Field(
        description="What the guest can reach. Only none works in this version.",
        examples=["none"],
    )
    readonly: bool = Field(
        default=False,
        description="Whether the root cannot be written. Otherwise it can, and what was written is "
        "thrown away with the VM. /tmp and /data can always be written.",
        examples=[True],
    )
    timeout_seconds: Annotated[int, Field(ge=0, le=2_592_000)] = Field(
        default=0,
        description="How long one command may take; then all it started is killed and the exit "
        "code is 124. 0 is no limit, 2592000 (30 days) the most.",
        examples=[600],
    )
    env: Env = Field(
        default_factory=dict,
        description="Environment variables of every command. Not for secrets: the sandbox reads "
        "them.",
        examples=[{"LANG": "C.UTF-8"}],
    )
    data_size: DataSize = Field(
        default=None,
        description="Size of /data, which outlives the VM: a whole number with K, M, G or T, "
        "16M to 16T. Without it: 8G.",
        examples=["10G"],
        json_schema_extra=_without_default,
    )
    state: Literal["running", "stopped", "built"] = Field(
        default="running",
        description="running: a VM is kept up. stopped: none is. built: none is, but everything to "
        "start one in an instant is ready.",
        examples=["stopped"],
    )
    on_drift: Literal["alert", "stop"] = Field(
        default_factory=_default_on_drift,
        description="What happens when the VMM is found less confined than declared: alert records "
        "and shows it, stop also stops the VM. Without it: stop for strict, alert for standard.",
        examples=["stop"],
    )
    protect: bool = Field(
        default=False,
        description="Refuse to destroy the sandbox, by command or by removing its file.",
        examples=[True],
    )

    @property
    def data_size_bytes(self) -> int | None:
        """`data_size` in bytes; None when the Boxfile does not say."""
        return None if self.data_size is None else parse_size(self.data_size)
