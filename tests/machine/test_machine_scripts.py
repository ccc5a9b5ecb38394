"""Scripts that look at a machine say the same of a simulated host and a real one, but for what is named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost
from lab.machine.qemu import GPUS
from tests.fixtures.tables import beside
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import PROJECT

SIMULATED_GPU = {
    "supermicro-hgx-h100": "0000:86:00.0",
    "plain-gpu-v100": "0000:1a:00.0",
    "prepared": "0000:86:00.0",
}
PREPARED = "prepared"

_READ = beside(__file__, "scripts.yaml")


@dataclass(frozen=True)
class Asked:
    """One script, what it is asked, and which of its keys may differ, why."""

    script: str
    arguments: Sequence[str] = ()
    platform: str = "supermicro-hgx-h100"
    after: Sequence[str] = ()
    account: str = ""
    content: str | None = None
    differ: dict[str, list[str]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """What may differ, for whatever reason."""
        assert set(self.differ) <= set(_READ["reasons"])
        return {key for keys in self.differ.values() for key in keys}


ASKED = [Asked(**row) for row in (*_READ["looks"], *_READ["changes"])]
NOT_COMPARED = {script for scripts in _READ["not-compared"].values() for script in scripts}

_SHAPES = (
    (r"\d+", "NUMBER"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID"),
    (r"[0-9a-f]{64}", "SHA256"),
    (r"[0-9a-f]{32}", "HEX"),
    (r"0x[0-9a-f]{16}", "HEX"),
    (r"[0-9a-f]{4}:[0-9a-f]{4}", "ID"),
    (r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", "ADDRESS"),
)


def shape(word: str) -> str:
    """What kind of value a word is; states and names are themselves."""
    return next((name for pattern, name in _SHAPES if re.fullmatch(pattern, word)), word)


def forms(text: str, gpu: str) -> dict[str, set[str]]:
    """The shapes of the lines by their first word."""
    found: dict[str, set[str]] = {}
    for line in text.replace(gpu, "GPU").splitlines():
        key, *rest = line.split() or [""]
        found.setdefault(key, set()).add(" ".join(map(shape, rest)))
    return found


def said(host: SshHost, asked: Asked, gpu: str) -> dict[str, set[str]]:
    own = ("XDG_RUNTIME_DIR=/run/user/1000", "DOCKER_HOST=unix:///run/user/1000/docker.sock")
    done = run_script(
        host,
        asked.script,
        [word.replace("GPU", gpu) for word in asked.arguments],
        tried="look",
        after=asked.after,
        accept=range(256),
        account=asked.account,
        environment=own if asked.account else (),
        content=None if asked.content is None else asked.content.encode(),
    )
    return {**forms(done.stdout.decode(), gpu), "status": {str(done.status)}}


@pytest.fixture(scope="module")
def simulated(hosts_pool: Any) -> dict[str, SshHost]:
    """A bare host of each platform."""
    return {
        platform: hosts_pool.add(1, "supermicro-hgx-h100")[0].ssh
        if platform == PREPARED
        else hosts_pool.add(1, platform, condition="bare")[0].ssh
        for platform in SIMULATED_GPU
    }


@pytest.mark.parametrize("asked", ASKED, ids=lambda one: "-".join([one.script, *one.arguments[:1]]))
def test_it_says_the_same(
    asked: Asked, machine: RealMachine, simulated: dict[str, SshHost]
) -> None:
    real = said(machine.ssh, asked, GPUS[0])
    played = said(simulated[asked.platform], asked, SIMULATED_GPU[asked.platform])
    differing = {
        key: (played.get(key), real.get(key))
        for key in {*played, *real}
        if played.get(key) != real.get(key)
    }
    assert {key: both for key, both in differing.items() if key not in asked.keys} == {}
    assert asked.keys <= set(differing), "what no longer differs is no longer named"


def test_each_script_is_compared_or_says_why_not() -> None:
    folders = (PROJECT / "gpuclusters").glob("*/scripts/*.sh")
    scripts = {f"{path.parts[-3]}/{path.stem}" for path in folders}
    used = [name for one in ASKED for name in (one.script, *one.after)]
    assert {*used, *NOT_COMPARED} == scripts
    assert set(used).isdisjoint(NOT_COMPARED)
