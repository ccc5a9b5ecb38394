"""Small parts of the lab: what it remembers, which nodes it has, what its processes take and import."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.control_plane import NodeSpec, Taint
from lab.hosts import HostSpec, NodeState
from lab.node_kind import decide
from lab.nodes import Kind, MachineFacts, Wanted
from lab.pods.rootless import InNode
from lab.spec import FILE, LabSpec, remember, with_known
from lab.usernetes import faults
from lab.usernetes.server import inside

ROOT = MachineFacts("linux", root=True)
USER = MachineFacts("linux", root=False)
SPEC = LabSpec(name="dev", hosts=(), nodes=(), image="")


def test_without_a_lab_the_machine_and_the_configuration_decide(tmp_path: Path) -> None:
    assert decide(tmp_path, Wanted.AUTO, ROOT).kind is Kind.REAL
    simulated = decide(tmp_path, Wanted.AUTO, USER)
    assert (simulated.kind, simulated.refused) == (Kind.SIMULATED, False)
    assert "root" in simulated.why
    assert decide(tmp_path, Wanted.SIMULATED, ROOT).kind is Kind.SIMULATED
    assert decide(tmp_path, Wanted.REAL, USER).refused


@pytest.mark.parametrize("kind", list(Kind))
def test_a_lab_keeps_its_kind(tmp_path: Path, kind: Kind) -> None:
    remember(tmp_path, replace(SPEC, kind=kind))
    for wanted in (Wanted.AUTO, Wanted(kind.value)):
        choice = decide(tmp_path, wanted, ROOT)
        assert (choice.kind, choice.refused) == (kind, False)
    (other,) = {Wanted.REAL, Wanted.SIMULATED} - {Wanted(kind.value)}
    choice = decide(tmp_path, other, ROOT)
    assert choice.refused
    assert "gpu-clusters down" in choice.why


def test_what_nodes_that_run_have_taken_of_the_machine_does_not_count_against_them(
    tmp_path: Path,
) -> None:
    few = replace(ROOT, inotify=0)
    assert decide(tmp_path, Wanted.AUTO, few).kind is Kind.SIMULATED
    remember(tmp_path, replace(SPEC, kind=Kind.REAL))
    assert decide(tmp_path, Wanted.AUTO, few) == decide(tmp_path, Wanted.REAL, ROOT)
    # Real nodes that are there are not played by a user without root.
    choice = decide(tmp_path, Wanted.AUTO, USER)
    assert choice.refused
    assert "root" in choice.why


def spec(*names: str, platform: str = "plain-server", joins: bool = True) -> LabSpec:
    return LabSpec(
        name="dev",
        hosts=tuple(HostSpec(name, platform, condition="bare") for name in names),
        nodes=tuple(NodeSpec(name, taints=(Taint("a", "NoSchedule", "b"),)) for name in names),
        image="",
        joins=frozenset(names) if joins else frozenset(),
    )


def test_a_machine_that_is_not_asked_for_any_more_stays_and_the_new_word_counts_of_others(
    tmp_path: Path,
) -> None:
    assert with_known(tmp_path, spec("a")) == spec("a")
    remember(tmp_path, spec("a", "b"))
    assert with_known(tmp_path, spec("a")) == spec("a", "b")
    found = with_known(tmp_path, spec("a", platform="plain-gpu-a100", joins=False))
    assert [host.platform for host in found.hosts] == ["plain-gpu-a100", "plain-server"]
    assert found.joins == {"b"}
    (tmp_path / FILE).write_text('{"version": 9}')
    assert with_known(tmp_path, spec("a")) == spec("a"), "of another version of the lab"


GPUS = ("GPU-1", "GPU-2")
NODE = NodeState("a", True, GPUS, "nvidia", True, "worker", True)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("runtime-not-default", ""),
        ("no-specification", "all GPU-1"),
        ("names-by-index", "GPU-1"),
        ("stale-uuids", "GPU-1"),
        ("gpu-lost", ""),
        ("network-closed", ""),
        ("rank-dies", ""),
    ],
)
def test_a_fault_changes_what_is_inside_its_node_alone(kind: str, missing: str) -> None:
    here, there = (faults.parse(f"usernetes-{kind}", {"node": node}) for node in ("a", "b"))
    found = inside(NODE, [here])
    assert inside(NODE, [there]) == InNode(GPUS, ("all", *GPUS), "nvidia", True) != found
    for visible in ("all", "GPU-1"):
        said = found.unresolvable(visible) or ""
        assert said.endswith(f"nvidia.com/gpu={visible}") == (visible in missing.split()), said
