"""What a lab remembers of what it was asked for."""

from __future__ import annotations

from pathlib import Path

from lab.control_plane import NodeSpec, Taint
from lab.hosts import HostSpec
from lab.spec import FILE, LabSpec, remember, with_known


def spec(*names: str, platform: str = "plain-server", joins: bool = True) -> LabSpec:
    return LabSpec(
        name="dev",
        hosts=tuple(HostSpec(name, platform, condition="bare") for name in names),
        nodes=tuple(NodeSpec(name, taints=(Taint("a", "NoSchedule", "b"),)) for name in names),
        image="",
        joins=frozenset(names) if joins else frozenset(),
    )


def test_a_machine_that_is_not_asked_for_any_more_stays(tmp_path: Path) -> None:
    remember(tmp_path, spec("a", "b"))
    assert with_known(tmp_path, spec("a")) == spec("a", "b")


def test_of_a_machine_that_is_asked_for_otherwise_the_new_word_counts(tmp_path: Path) -> None:
    remember(tmp_path, spec("a", "b"))
    asked = spec("a", platform="plain-gpu-a100", joins=False)
    found = with_known(tmp_path, asked)
    assert [host.platform for host in found.hosts] == ["plain-gpu-a100", "plain-server"]
    assert found.joins == {"b"}


def test_without_a_lab_or_with_another_versions_file_only_what_is_asked_for_counts(
    tmp_path: Path,
) -> None:
    assert with_known(tmp_path, spec("a")) == spec("a")
    (tmp_path / FILE).write_text('{"version": 9}')
    assert with_known(tmp_path, spec("a")) == spec("a")
