"""Values as lines of YAML, the way a person would write them."""

from __future__ import annotations

from typing import Any

import yaml

from reconciler.boxfile.scalars import needs_quotes

_WIDTH = 100


def snippet(name: str, value: object) -> str:
    """One field as it stands in a Boxfile, which reads it back as the same value."""
    return yaml.dump({name: value}, Dumper=_Dumper, sort_keys=False, width=_WIDTH).rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Lists are indented below their key, text of several lines is written as it is."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:  # noqa: ANN401, FBT001, FBT002  # its signature
        return super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if needs_quotes(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)
