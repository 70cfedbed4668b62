from __future__ import annotations

import pytest
from pydantic import ValidationError

from reconciler.boxfile.known import NOT_YET_FIELDS, NOT_YET_VALUES
from reconciler.boxfile.model import Boxfile


def test_a_boxfile_cannot_be_changed() -> None:
    boxfile = Boxfile(base="alpine", network="none")
    with pytest.raises(ValidationError, match="frozen"):
        boxfile.cpus = 4  # type: ignore[misc]


@pytest.mark.parametrize("name", Boxfile.model_fields)
def test_every_field_has_a_description_and_a_valid_example(name: str) -> None:
    field = Boxfile.model_fields[name]
    assert field.description
    assert field.description.endswith(".")
    assert field.examples
    for example in field.examples:
        Boxfile.model_validate({"base": "alpine", "network": "none", name: example})


def test_what_is_not_yet_supported_is_not_in_the_model() -> None:
    assert not NOT_YET_FIELDS & Boxfile.model_fields.keys()
    for field, values in NOT_YET_VALUES.items():
        for value in values:
            with pytest.raises(ValidationError):
                Boxfile.model_validate({"base": "alpine", "network": "none", field: value})
