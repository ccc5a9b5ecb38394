"""What programs of a simulated host answer, and what follows, as `answers.yaml` and `gpus.yaml` tell it."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import gpuclusters.host as host_package
import lab.hosts
from gpuclusters.config.nodes import PACKAGES
from lab.hosts import faults
from lab.hosts.hardware import tenant
from lab.hosts.model import USER, HostsError
from lab.hosts.usernetes.rootless import rootless_engine
from tests.fixtures.hosts import Hosts, SimulatedHost
from tests.fixtures.tables import beside
from tests.fixtures.waiting import eventually

STORIES: dict[str, list[dict[str, Any]]] = {
    name: steps
    for file in ("answers.yaml", "gpus.yaml")
    for name, steps in beside(__file__, file).items()
}
COMMANDS = {"run", "root"}
EXPECTED = {"stdin", "exit", "prints", "says", "matches", "complains", "logs"}
NOT_INITIALISED = 248
INSTALL = Path(host_package.__file__).with_name("scripts") / "install_packages.sh"


@pytest.mark.parametrize("story", STORIES)
def test_programs_answer_as_the_real_ones(hosts: Hosts, story: str) -> None:
    steps = STORIES[story]
    kind = steps[0].get("host", {})
    (host,) = hosts(1, **kind)
    for step in steps[1 if kind else 0 :]:
        play(host, step)


def play(host: SimulatedHost, step: dict[str, Any]) -> None:
    if (asked := COMMANDS & set(step)) and set(step) <= asked | EXPECTED:
        (how,) = asked
        ask = host.run if how == "run" else host.sudo
        compare(step, ask(step[how], stdin=step.get("stdin")))
        return
    where = host.folder, host.name
    match step:
        case {"install": packages}:
            named = PACKAGES if packages == "all" else packages
            line = f"sudo -n sh -s -- {shlex.join(named)} 2>&1"
            compare(step, host.run(line, stdin=INSTALL.read_text()))
        case {"inject": injected}:
            host.inject(*(faults.parse(kind, values) for kind, values in injected.items()))
        case {"clear": True}:
            host.clear_faults()
        case {"in-use": [partition, holder]}:
            host.set_partition_in_use(partition, holder)
        case {"reboot": True}:
            host.reboot()
        case {"hangs": command}:
            with pytest.raises(TimeoutError):
                host.run(command, timeout=0.7)
        case {"settles": True}:
            eventually(lambda: host.run("fmpm -l").returncode != NOT_INITIALISED)
        case {"active": numbers}:
            listed = json.loads(host.run("fmpm -l").stdout)["partitionInfo"]
            assert [one["partitionId"] for one in listed if one["isActive"]] == numbers, step
        case {"journal": event, "has": entries}:
            found = host.journal(event)
            assert [{key: one[key] for key in entries[0]} for one in found] == entries, (
                step,
                found,
            )
        case {"journal": event, "of": key, "holds": parts}:
            found = [entry[key] for entry in host.journal(event) if key in entry]
            assert len(found) == len(parts), (step, found)
            assert all(
                one is part or {*part} <= {*one} for one, part in zip(found, parts, strict=True)
            ), step
        case {"harm": texts}:
            found = [entry["what"] for entry in host.journal("harm")]
            assert len(found) == len(texts), (step, found)
            assert all(text in said for text, said in zip(texts, found, strict=True)), (step, found)
        case {"use": modules, "by": name}:
            changes = {key: step.get(key) for key in ("knobs", "firmware")}
            assert tenant.use(*where, modules, name, **changes) == step.get("finds", []), step
        case {"repair": modules}:
            tenant.repair(*where, modules)
        case {"gpu": module, "is": expected}:
            found = tenant.state(*where, module).model_dump()
            assert found | expected == found, (step, found)
        case {"gpus": expected}:
            found = plain(asdict(lab.hosts.gpu_state(*where)))
            assert found | expected == found, (step, found)
        case {"divide": layout, "refused": text}:
            with pytest.raises(HostsError, match=text):
                lab.hosts.set_mig(*where, layout)
        case {"divide": layout}:
            lab.hosts.set_mig(*where, layout)
        case {"engine": expected}:
            engine = rootless_engine(host.folder / host.name, USER)
            assert plain({name: getattr(engine, name) for name in expected}) == expected, step
        case _:
            raise AssertionError(f"no step: {step}")


def plain(found: Any) -> Any:
    """As YAML has it."""
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    return list(found) if isinstance(found, tuple) else found


def compare(step: dict[str, Any], done: Any) -> None:
    assert done.returncode == step.get("exit", 0), (step, done)
    if "prints" in step:
        assert done.stdout == step["prints"], (step, done)
    if "matches" in step:
        assert re.fullmatch(step["matches"], done.stdout), (step, done)
    if "logs" in step:
        assert about(done.stderr) == step["logs"], (step, done)
    for expected, said in (("says", done.stdout), ("complains", done.stderr)):
        texts = step.get(expected, [])
        for text in [texts] if isinstance(texts, str) else texts:
            assert text in said, (step, done)


def about(errors: str) -> list[str]:
    """What nvidia_gpu_tools.py logs about devices, without their names."""
    lines = re.findall(r"^\d{4}-\d\d-\d\d,\d\d:\d\d:\d\d\.\d{3} \w+ +(.*)$", errors, re.MULTILINE)
    texts = [text for text in lines if not text.startswith("Selected")]
    return [re.sub(r"^(GPU|NvSwitch) \S+ \S+ \S+ BAR0 \S+ ", "", text) for text in texts]
