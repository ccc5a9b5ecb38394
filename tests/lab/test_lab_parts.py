"""Small parts of the lab: what it remembers, which nodes it has, what its processes take and import."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from lab import memory
from lab.control_plane import NodeSpec, Taint
from lab.hosts import HostSpec
from lab.node_kind import decide
from lab.nodes import Kind, MachineFacts, Wanted
from lab.pods.on_processor import arguments, counted
from lab.spec import FILE, LabSpec, remember, with_known

_PARENT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=0) as child:
    child.wait()
"""
_CHILD = """
import sys
held = b"x" * (64 * 2**20)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_counts_by_itself_or_with_all_that_it_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        alone = memory.of_process(process.pid)
        tree = memory.of_trees([process.pid, os.getpid()])
        assert process.stdin is not None
        process.stdin.close()
    assert 0 < alone < 64 * 2**20 < tree[process.pid] < tree[os.getpid()]
    gone = 2**31 - 1  # more than any kernel gives
    assert memory.of_process(None) == memory.of_process(gone) == 0
    assert memory.of_trees([gone]) == {gone: 0}


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


PACKAGES = ("control_plane", "gpu_operator", "hosts", "kubelet", "nodes")
NONE = "frobnicate"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_is_what_a_type_checker_takes_it_for(package: str) -> None:
    module = import_module(f"lab.{package}")
    source = ast.parse(Path(str(module.__file__)).read_text())
    declared = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
        if node.module.startswith(f"lab.{package}.")
    }
    assert set(module.__all__) == set(declared)
    for name, home in declared.items():
        assert getattr(module, name) is getattr(import_module(home), name)
    with pytest.raises(AttributeError, match=f"module 'lab.{package}' has no attribute '{NONE}'"):
        getattr(module, NONE)


def test_the_first_process_of_a_node_imports_no_client_and_no_simulated_host() -> None:
    """It starts with every node, and a node starts in two seconds."""
    listed = subprocess.run(
        [sys.executable, "-c", "import sys, lab.nodes.first_process; print(*sys.modules)"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert "lab.nodes.first_process" in listed
    assert {"kubernetes", "pydantic", "aiohttp", "lab.hosts.host"}.isdisjoint(listed)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("/proof/matmul.py --size 8192", ["--cpu", "--devices", "2"]),
        ("/proof/matmul.py --cpu --only cpu-0", []),
        ("/proof/train.py --gpus 2", []),
        ("-c print(1)", []),
        ("", []),
    ],
)
def test_the_program_that_measures_is_told_its_devices_and_others_run_as_they_are(
    words: str, more: list[str]
) -> None:
    assert arguments(words.split(), 2) == [*words.split(), *more]


@pytest.mark.parametrize(
    ("nodes", "instances", "count"),
    [
        ("null nvidia0 nvidia3 nvidiactl nvidia-uvm nvidia-caps", "", 2),
        ("null", "", 0),
        ("null vfio 17 23", "", 2),  # groups that a virtual machine would have
        # Instances of MIG count instead of their GPU.
        ("nvidia0 nvidiactl", "nvidia-cap12 nvidia-cap13 nvidia-cap21 nvidia-cap22", 2),
    ],
)
def test_gpus_are_counted_by_their_device_nodes(nodes: str, instances: str, count: int) -> None:
    assert counted(nodes.split(), instances.split()) == count
