from __future__ import annotations

from typing import get_args

import pytest
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from reconciler.boxfile.known import NOT_YET_FIELDS
from reconciler.boxfile.model import Blueprint, Boxfile, Mount, User, WriteFile

MODELS = (Boxfile, Mount, Blueprint, User, WriteFile)
NEEDED: dict[type[BaseModel], dict[str, object]] = {
    Boxfile: {"base": "alpine"},
    Mount: {"host": "/", "guest": "/x"},
    Blueprint: {},
    User: {"name": "agent"},
    WriteFile: {"path": "/x", "content": ""},
}


FIELDS = [(model, *each) for model in MODELS for each in model.model_fields.items()]


def models_of(annotation: object) -> set[type[BaseModel]]:
    """The models in a type, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for inner in get_args(annotation) for model in models_of(inner)}


def test_these_are_all_models() -> None:
    inner = {model for _, _, field in FIELDS for model in models_of(field.annotation)}
    assert inner | {Boxfile} == set(MODELS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_a_boxfile_cannot_be_changed(model: type[BaseModel]) -> None:
    made = model.model_validate(NEEDED[model])
    for name in model.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(made, name, getattr(made, name))


@pytest.mark.parametrize(("model", "name", "field"), FIELDS)
def test_every_field_has_a_description_and_a_valid_example(
    model: type[BaseModel], name: str, field: FieldInfo
) -> None:
    assert field.description
    assert field.description.endswith(".")
    assert field.examples
    for example in field.examples:
        model.model_validate({**NEEDED[model], name: example})


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_no_field_is_unknown_to_itself(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        model.model_validate({**NEEDED[model], "no_such_field": 1})


@pytest.mark.parametrize("value", [None, 1.0, b"x", object(), (), set(), "", [], {}, True, 1, "x"])
def test_values_are_taken_for_nothing_else(value: object) -> None:
    for model, name, _ in FIELDS:
        try:
            made = getattr(model.model_validate({**NEEDED[model], name: value}), name)
        except ValidationError:
            continue
        if not isinstance(made, BaseModel):
            assert type(made) is type(value), (model, name)


def test_what_later_versions_have_is_not_in_the_model() -> None:
    assert not NOT_YET_FIELDS & Boxfile.model_fields.keys()
