from __future__ import annotations

import json

import pytest

from reconciler.images.config import BadConfig, ImageConfig, parse_oci_config

AWKWARD = ["A=x y", 'B="q"', "C=$HOME", "D=two\nlines", "E=é", "F=", "G=a=b", "H=" + "8" * 8192]


def test_an_image_without_config_runs_as_root_in_the_root() -> None:
    assert parse_oci_config(None) == ImageConfig((), "/", "")
    assert parse_oci_config({}) == ImageConfig((), "/", "")
    assert parse_oci_config({"Env": None, "User": None, "WorkingDir": ""}) == ImageConfig()


def test_values_travel_as_data_whatever_they_hold() -> None:
    config = parse_oci_config(
        {"Env": AWKWARD, "WorkingDir": "/etc/ loglevel=7", "User": "app:staff", "Cmd": ["x"]}
    )
    assert config == ImageConfig(tuple(AWKWARD), "/etc/ loglevel=7", "app:staff")
    assert ImageConfig.from_json(json.loads(json.dumps(config.as_json()))) == config


@pytest.mark.parametrize(
    "config",
    [
        [],
        "text",
        {"Env": "A=1"},
        {"Env": {"A": "1"}},
        {"Env": [1]},
        {"Env": [["A=1"]]},
        {"Env": ["AWS*"]},
        {"Env": ["=value"]},
        {"Env": ["A=\0"]},
        {"Env": ["A=\ud800"]},
        {"Env": ["A=" + "x" * 200_000]},
        {"Env": ["A=" + "x" * 1000] * 200},
        {"WorkingDir": "relative"},
        {"WorkingDir": "/a\0b"},
        {"WorkingDir": 7},
        {"WorkingDir": "/" + "x" * 5000},
        {"User": ["root"]},
        {"User": "a\0b"},
    ],
    ids=lambda config: ascii(config)[:40],
)
def test_what_cannot_be_passed_on_as_it_is_is_refused(config: object) -> None:
    with pytest.raises(BadConfig):
        parse_oci_config(config)
