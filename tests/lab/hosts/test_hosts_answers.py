"""What programs of a simulated host answer, as `answers.yaml` tells it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.hosts import faults
from tests.fixtures.hosts import Hosts, SimulatedHost

STORIES: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("answers.yaml").read_text()
)
STEPS = {"host", "run", "root", "inject", "clear", "in-use", "reboot"}
EXPECTED = {"stdin", "exit", "prints", "says", "matches", "complains"}


@pytest.mark.parametrize("story", STORIES)
def test_programs_answer_as_the_real_ones(hosts: Hosts, story: str) -> None:
    steps = STORIES[story]
    kind = steps[0].get("host", {})
    (host,) = hosts(1, **kind)
    for step in steps[1 if kind else 0 :]:
        assert len(STEPS & set(step)) == 1, step
        assert set(step) <= STEPS | EXPECTED, step
        play(host, step)


def play(host: SimulatedHost, step: dict[str, Any]) -> None:
    match step:
        case {"inject": injected}:
            host.inject(*(faults.parse(kind, values) for kind, values in injected.items()))
        case {"clear": True}:
            host.clear_faults()
        case {"in-use": [partition, holder]}:
            host.set_partition_in_use(partition, holder)
        case {"reboot": True}:
            host.reboot()
        case {"root": command}:
            compare(step, host.sudo(command))
        case {"run": command}:
            compare(step, host.run(command, stdin=step.get("stdin")))


def compare(step: dict[str, Any], done: Any) -> None:
    assert done.returncode == step.get("exit", 0), (step, done)
    if "prints" in step:
        assert done.stdout == step["prints"], (step, done)
    if "matches" in step:
        assert re.fullmatch(step["matches"], done.stdout), (step, done)
    for expected, said in (("says", done.stdout), ("complains", done.stderr)):
        texts = step.get(expected, [])
        for text in [texts] if isinstance(texts, str) else texts:
            assert text in said, (step, done)
