"""Whether a lab has real nodes: decided once, said why, kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.node_kind import decide
from lab.nodes import Kind, MachineFacts, Wanted
from lab.spec import LabSpec, remember

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


def test_real_nodes_that_are_there_are_not_played_by_a_user_without_root(tmp_path: Path) -> None:
    remember(tmp_path, replace(SPEC, kind=Kind.REAL))
    choice = decide(tmp_path, Wanted.AUTO, USER)
    assert choice.refused
    assert "root" in choice.why


def test_what_nodes_that_run_have_taken_of_the_machine_does_not_count_against_them(
    tmp_path: Path,
) -> None:
    few = replace(ROOT, inotify=0)
    assert decide(tmp_path, Wanted.AUTO, few).kind is Kind.SIMULATED
    remember(tmp_path, replace(SPEC, kind=Kind.REAL))
    assert decide(tmp_path, Wanted.AUTO, few) == decide(tmp_path, Wanted.REAL, ROOT)
