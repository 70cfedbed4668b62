"""Surveys and passes over a folder, as `box sync` makes them."""

from __future__ import annotations

from pathlib import Path

from reconciler.controller.desired import Wish
from reconciler.controller.folder import Folder
from reconciler.controller.once import converge_once, settled_survey
from reconciler.controller.survey import Survey, Surveyor
from tests.controller.sleepers import Sleepers, put


def surveyor_of(engine: Sleepers, folder: Path) -> Surveyor:
    return Surveyor(engine, engine.home, Folder(folder))


def look(engine: Sleepers, folder: Path, confirmed: str | None = None) -> Survey:
    return settled_survey(surveyor_of(engine, folder), confirmed)


def sync(engine: Sleepers, folder: Path, confirmed: str | None = None) -> Survey:
    surveyor = surveyor_of(engine, folder)
    survey = settled_survey(surveyor, confirmed)
    surveyor.keep(survey)
    list(converge_once(engine, engine.home, survey, lambda _name, _text: None))
    return survey


def wishes(survey: Survey) -> dict[str, Wish]:
    return {wish.name: wish for wish in survey.wishes}


def three(engine: Sleepers, folder: Path) -> None:
    for name in ("a", "b", "c"):
        put(folder / f"{name}.Boxfile")
    sync(engine, folder)
