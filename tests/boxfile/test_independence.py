"""All errors at once: what is wrong with one field never hides what is wrong with another."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest

from reconciler.boxfile.problems import MOST_PROBLEMS
from tests.boxfile.loading import problems_of

HEAD = "backend: krun\n"
BASE = "base: alpine\n"
# Lines that are wrong whatever stands beside them; each by its own key.
FAULTS = {
    "base": "base: Alpine\n",
    "version": "version: 2\n",
    "isolation": "isolation: paranoid\n",
    "cpus": "cpus: 0\n",
    "ram_mib": "ram_mib: 1e99\n",
    "network": "network: off\n",
    "passt": "passt: yes\n",
    "readonly": "readonly: &a yes\n",
    "timeout_seconds": "timeout_seconds:\n",
    "warm": "warm: !!int 9\n",
    "warmup": "warmup: ['', [a], 5]\n",
    "packages": "packages: [--option, a b]\n",
    "run": 'run: ["a\\n", true]\n',
    "env": "env: {A: no, 1: x, B-C: y, A: z}\n",
    "mounts": (
        "mounts:\n- {host: ../x, guest: x, mode: rx}\n- x\n- {host: /, guest: /x, mod: rw}\n"
        "- {guest: /x}\n- *a\n- {host: !t b, guest: /x}\n"
    ),
    "blueprint": (
        "blueprint:\n  users: [{name: A}, {name: a}, {sudo: no, name: a}, {nam: b}]\n"
        "  write_files: [{path: /a, content: 5}, {path: /a},\n"
        "   {path: /a/, content: '', mode: 0644}]\n"
        "  runcmd: {a: b}\n  packages: [git]\n"
    ),
    "pkgmgr": "pkgmgr: yum\n",
    "seccomp": "seccomp: unconfined\n",
    "data_size": "data_size: 10\n",
    "state": "state: Running\n",
    "on_drift": "on_drift: [stop]\n",
    "protect": 'protect: "true"\n',
    "egress": "egress: []\n",
    "image": "image: alpine\n",
    "a key that is none": "1: x\n",
    "a list for a key": "? [*b]\n: {A: &c x}\n",
    "a key given twice": "backend: lima\n",
}
# Several rules over more than one field, each on its own.
RULES = {
    "mounts twice": "mounts: [{host: /, guest: /a}, {host: /, guest: /a}]\n",
    "strict and rw": "isolation: strict\nmounts: [{host: /, guest: /a, mode: rw}]\n",
    "users twice": "blueprint: {users: [{name: a}, {name: a}]}\n",
    "files twice": "blueprint: {write_files: [{path: /a, content: ''}, {path: /a, content: ''}]}\n",
    "packages of another manager": "packages: ['git:arm64', '-x']\n",
    "qemu": (
        "backend: qemu\nnetwork: bridge\npasst: true\nwarm: 1\nwarmup: [a]\nseccomp: a.json\n"
        "mounts: [{host: /, guest: /a}]\non_drift: freeze\n"
    ),
}


def told(text: str) -> Counter[tuple[str, str]]:
    """The problems of a text without their places."""
    found = problems_of(text.encode())
    assert len(found) < MOST_PROBLEMS
    return Counter((each.path, re.sub(r"line \d+", "line N", each.message)) for each in found)


def file_of(*lines: str) -> str:
    text = "".join(lines)
    start = "" if re.search("^base:", text, re.MULTILINE) else BASE
    return start + ("" if re.search("^backend: q", text, re.MULTILINE) else HEAD) + text


@pytest.mark.parametrize("name", FAULTS)
def test_two_faults_are_told_as_each_alone(name: str) -> None:
    alone = told(file_of(FAULTS[name]))
    for other in FAULTS.keys() - {name}:
        both = told(file_of(FAULTS[name], FAULTS[other]))
        assert both == alone + told(file_of(FAULTS[other])), other


def test_many_faults_are_told_at_once() -> None:
    names = [name for name in FAULTS if name not in {"mounts", "blueprint", "image"}]
    together = told(file_of(*[FAULTS[name] for name in names]))
    assert together == sum((told(file_of(FAULTS[name])) for name in names), Counter())


def fields_of(text: str) -> set[str]:
    return set(re.findall("^[a-z_]+(?=:)", text, re.MULTILINE))


# What a rule must know: which packages there are depends on the base.
NEEDED = {"packages of another manager": {"base", "pkgmgr"}}
PAIRS = [
    (rule, name)
    for rule, name in itertools.product(RULES, FAULTS)
    if not fields_of(FAULTS[name]) & (fields_of(RULES[rule]) | NEEDED.get(rule, set()))
]


@pytest.mark.parametrize(("rule", "name"), PAIRS)
def test_a_fault_hides_no_broken_rule_of_other_fields(rule: str, name: str) -> None:
    both = told(file_of(RULES[rule], FAULTS[name]))
    assert both == told(file_of(RULES[rule])) + told(file_of(FAULTS[name]))
