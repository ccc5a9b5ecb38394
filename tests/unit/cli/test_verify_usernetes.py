"""`verify` of a usernetes cluster: which rungs, what is asked of whom, what ends the climb."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gpuclusters.cli import reach, verify
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config import usernetes_plan
from gpuclusters.config.stack import ClusterType
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
from tests.unit.proof.ladder_world import LadderCluster, host

KEY = host_key(1)
SECTION = base(ClusterType.USERNETES)["usernetes"]


def config(**keys: Any) -> UsernetesConfig:
    return UsernetesConfig.model_validate(
        {**SECTION, "gpus": SECTION["gpus"] | {"count": 2}, **keys}
    )


class Cluster(LadderCluster):
    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(
            gpus=dict.fromkeys(names, "2"),
            ready=dict.fromkeys(names, "True"),
            external=dict.fromkeys(names, "203.0.113.1"),
        )
        reached = '{{"proof": "reach", "node": "{}", "peers": []}}'
        self.logs |= {f"reach-{n}": reached.format(name) for n, name in enumerate(names)}

    def version(self) -> str:
        return "v1.37.0"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Hosts and cluster without any network; what each host says can be changed."""
    names = usernetes_plan.machine_names(config())
    said: dict[str, Any] = {name: host() for name in names}

    def reached(*_: Any) -> Any:
        there = {
            name: HostConnection(host=name, address="203.0.113.1", user="ubuntu", host_key=KEY)
            for name in names
        }
        return there, SimpleNamespace()

    def ask(one: SshHost, account: str, highest: CheckLevel) -> HostAnswers:
        assert account == config().account
        text = said[one.connection.host]
        if isinstance(text, Exception):
            raise text
        return hosts.parse(text)

    cluster = Cluster(names)
    monkeypatch.setattr(reach, "reach", reached)
    monkeypatch.setattr(verify.hosts, "ask", ask)
    monkeypatch.setattr(verify, "PatientObjects", lambda _: cluster)
    monkeypatch.setattr(reach, "kubeconfig", lambda *_: "kubeconfig")
    return {"said": said, "cluster": cluster, "names": names}


def verified(level: str | None = None, **keys: Any) -> Evidence:
    return verify.usernetes(verify.Request(Project.find(), "s", level=level), config(**keys))


def test_all_rungs_of_the_configuration_are_climbed_and_kept_as_evidence(
    world: dict[str, Any],
) -> None:
    found = verified(proof={"rung": 8})
    assert found.holds, [c for c in found.checks if c.outcome is not Outcome.PASSED]
    count = len(world["names"])
    assert [c.level for c in found.checks] == [f"R{n}" for n in range(1, 9) for _ in range(count)]
    assert faults(found.document()) == []
    assert set(found.programs) == {"reach.py", "train.py"}
    assert set(found.nodes) == set(world["names"])


def test_a_host_that_fails_ends_the_climb_before_the_cluster_is_touched(
    world: dict[str, Any],
) -> None:
    name = world["names"][0]
    world["said"][name] = host(docker_info="1\nCannot connect to the Docker daemon\n")
    found = verified(proof={"rung": 8})
    assert not found.holds
    (failed,) = [c for c in found.checks if c.outcome is Outcome.FAILED]
    assert (failed.level, failed.subject) == ("R2", name)
    assert [c.level for c in found.checks if c.outcome is Outcome.NOT_TRIED] == [
        "R5", "R6", "R7", "R8",
    ]  # fmt: skip
    assert world["cluster"].made == []


def test_a_host_that_is_not_reached_is_named(world: dict[str, Any]) -> None:
    name = world["names"][0]
    world["said"][name] = UnreachableError(name, "log in", "no route to host", "check its network")
    (failed,) = [c for c in verified().checks if c.outcome is Outcome.FAILED]
    assert failed.subject == name
    assert "no route to host; check its network" in failed.said


def test_the_hosts_rungs_alone_need_nothing_of_the_cluster(world: dict[str, Any]) -> None:
    found = verified("R4")
    assert found.holds
    assert found.level == "R4"
    assert {c.level for c in found.checks} == {"R1", "R2", "R3", "R4"}
    assert world["cluster"].made == []


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
    stated = {
        "host": "a",
        "address": "203.0.113.9",
        "port": 22.0,
        "user": "ubuntu",
        "host_key": KEY,
    }
    resources = [
        {"type": "x", "inputs": {"connection": stated}},
        {"type": "y", "inputs": {"connection": "unknown"}},
        {"type": "z"},
    ]
    found = connections(one.get("inputs") or {} for one in resources)
    assert list(found) == ["a"]
    assert (found["a"].address, found["a"].port) == ("203.0.113.9", 22)
