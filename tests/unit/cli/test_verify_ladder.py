"""`verify` of usernetes and gke clusters: which rungs, what is asked of whom, what ends the climb."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuclusters.cli import compare, reach, verify
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config import usernetes_plan
from gpuclusters.config.gke import GkeConfig
from gpuclusters.config.stack import ClusterType, StackConfig
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.errors import UnreachableError
from gpuclusters.drift.hosts import connections
from gpuclusters.host.model import HostConnection
from gpuclusters.host.ssh import SshHost
from gpuclusters.proof import hosts
from gpuclusters.proof.checks import CheckLevel, Outcome
from gpuclusters.proof.evidence import Evidence, faults
from gpuclusters.proof.hosts import HostAnswers
from tests.fixtures.made_up import host_key
from tests.unit.config.documents import base
from tests.unit.proof.proof_world import LadderCluster, host, reached

KEY = host_key(1)
SECTION = base(ClusterType.USERNETES)["usernetes"]
GKE = GkeConfig.model_validate(base(ClusterType.GKE)["gke"])
GKE_NODES = ("gke-study-v100-1a", "gke-study-v100-2b")


def config(**keys: Any) -> UsernetesConfig:
    gpus = SECTION["gpus"] | {"count": 2}
    return UsernetesConfig.model_validate({**SECTION, "gpus": gpus, **keys})


NAMES = usernetes_plan.machine_names(config())


def cluster(
    names: Sequence[str], gpus: str, monkeypatch: pytest.MonkeyPatch, **more: Any
) -> LadderCluster:
    made = LadderCluster(
        gpus=dict.fromkeys(names, gpus), ready=dict.fromkeys(names, "True"), external={}, **more
    )
    made.logs |= {f"reach-{n}": reached(name) for n, name in enumerate(names)}
    monkeypatch.setattr(verify, "PatientObjects", lambda _: made)
    return made


def test_evidence_of_a_managed_cluster_begins_at_the_nodes_and_can_be_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reach, "made_kubeconfig", lambda *_: "kubeconfig")
    monkeypatch.setattr(verify, "read_valid", lambda *_: StackConfig(ClusterType.GKE, GKE))
    google = cluster(GKE_NODES, "1", monkeypatch, pools=dict.fromkeys(GKE_NODES, "v100"))
    with pytest.raises(UsageError, match="5 to 9: its hosts are Google's"):
        verify.gke(verify.Request(Project.find(), "s", level="R4"), GKE)
    assert google.made == []
    assert verify.run(verify.Request(Project.find(), "s"), folder=tmp_path) == 0
    (path,) = tmp_path.glob("ladder-study-*.json")
    document = json.loads(path.read_text())
    assert faults(document) == []
    assert {row["level"] for row in document["checks"]} == {"R5", "R6", "R7", "R8"}
    assert document["apiServer"] == google.version()
    assert set(document["nodes"]) == set(GKE_NODES)
    assert google.left() == []
    assert document["setting"]["type"] == "gke"
    # e2-standard-4 is in no price table, and what is not known is no zero.
    assert document["setting"]["perHour"] is None
    capsys.readouterr()
    compare.command(path, path, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["type"] == {"a": "gke", "b": "gke"}
    assert told["isolation"]["a"].startswith("namespaces; Google runs the control plane")


@dataclass
class World:
    """Hosts and cluster of Usernetes without any network; what each host says can be changed."""

    cluster: LadderCluster
    said: dict[str, Any] = field(default_factory=lambda: {name: host() for name in NAMES})

    def reach(self, *_: Any) -> Any:
        there = {
            name: HostConnection(host=name, address="203.0.113.1", user="ubuntu", host_key=KEY)
            for name in NAMES
        }
        return there, SimpleNamespace()

    def ask(self, one: SshHost, account: str, highest: CheckLevel) -> HostAnswers:
        assert account == config().account
        text = self.said[one.connection.host]
        if isinstance(text, Exception):
            raise text
        return hosts.parse(text)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(cluster(NAMES, "2", monkeypatch))
    made.cluster.external = dict.fromkeys(NAMES, "203.0.113.1")
    monkeypatch.setattr(reach, "reach", made.reach)
    monkeypatch.setattr(verify.hosts, "ask", made.ask)
    monkeypatch.setattr(reach, "kubeconfig", lambda *_: "kubeconfig")
    return made


def verified(level: str | None = None, **keys: Any) -> Evidence:
    return verify.usernetes(verify.Request(Project.find(), "s", level=level), config(**keys))


def test_all_rungs_of_the_configuration_are_climbed_and_kept_as_evidence(world: World) -> None:
    found = verified(proof={"rung": 8})
    assert found.holds, [c for c in found.checks if c.outcome is not Outcome.PASSED]
    assert [c.level for c in found.checks] == [f"R{n}" for n in range(1, 9) for _ in NAMES]
    assert faults(found.document()) == []
    assert set(found.programs) == {"reach.py", "train.py"}
    assert set(found.nodes) == set(NAMES)


def test_a_host_that_fails_or_is_not_reached_ends_the_climb_before_the_cluster_is_touched(
    world: World,
) -> None:
    name = NAMES[0]
    world.said[name] = host(docker_info="1\nCannot connect to the Docker daemon\n")
    found = verified(proof={"rung": 8})
    assert not found.holds
    (failed,) = [c for c in found.checks if c.outcome is Outcome.FAILED]
    assert (failed.level, failed.subject) == ("R2", name)
    untried = [c.level for c in found.checks if c.outcome is Outcome.NOT_TRIED]
    assert untried == ["R5", "R6", "R7", "R8"]
    world.said[name] = UnreachableError(name, "log in", "no route to host", "check its network")
    (failed,) = [c for c in verified().checks if c.outcome is Outcome.FAILED]
    assert failed.subject == name
    assert "no route to host; check its network" in failed.said
    assert world.cluster.made == []


def test_the_hosts_rungs_alone_need_nothing_of_the_cluster(world: World) -> None:
    found = verified("R4")
    assert found.holds
    assert found.level == "R4"
    assert {c.level for c in found.checks} == {"R1", "R2", "R3", "R4"}
    assert world.cluster.made == []


@pytest.mark.parametrize(
    ("level", "said"),
    [("0", "must be a rung, 1 to 9"), ("L1", "must be a rung"), ("9", "needs the training")],
)
def test_a_rung_that_is_none_or_not_described_is_refused(level: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        verify.rung(config(proof={"rung": 8}), level)


@pytest.mark.parametrize(("level", "rung"), [(None, 8), ("7", 7), ("r3", 3)])
def test_the_highest_rung_is_stated_or_the_configurations(level: str | None, rung: int) -> None:
    assert verify.rung(config(proof={"rung": 8}), level) == rung


def test_a_configuration_that_cannot_be_proven_says_why() -> None:
    alone = config(workers=[], **{"schedule-on-control-plane": False})
    arguments = usernetes_plan.arguments(alone, CheckLevel.NETWORK)
    with pytest.raises(RunError, match="none takes pods"):
        verify.ladder_inputs(alone, "kubeconfig", arguments)


def test_machines_that_the_stack_makes_are_reached_as_its_state_says() -> None:
    stated = {"host": "a", "address": "203.0.113.9", "port": 22.0, "user": "u", "host_key": KEY}
    resources = [
        {"type": "x", "inputs": {"connection": stated}},
        {"type": "y", "inputs": {"connection": "unknown"}},
        {"type": "z"},
    ]
    found = connections(one.get("inputs") or {} for one in resources)
    assert list(found) == ["a"]
    assert (found["a"].address, found["a"].port) == ("203.0.113.9", 22)
