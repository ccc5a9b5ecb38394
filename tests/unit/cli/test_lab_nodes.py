"""What commands say of the lab's nodes: Kata's stand-in, machines of other types, how to get real ones."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gpuclusters.cli import doctor_stack, verify
from gpuclusters.cli import lab as lab_command
from gpuclusters.cli.diagnosis import Diagnosis, Level
from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project, read_valid
from gpuclusters.config.stack import StackConfig
from lab import lifecycle, nodes, parts
from lab.kata_runtime import sentence
from lab.nodes import Kind, MachineFacts
from lab.spec import LabSpec, remember

GOOD = MachineFacts("linux", root=True)
FEW = replace(GOOD, inotify=3)
USER = MachineFacts("linux", root=False)
ANEW = "nodes stay simulated until the lab is made anew"

Start = Callable[[StackConfig], tuple[str, str]]
Machine = Callable[[MachineFacts], None]


@pytest.fixture
def start(project: Project, monkeypatch: pytest.MonkeyPatch) -> Start:
    """What a start of the lab prints, and what it has to say at the end; nothing is started."""
    project.lab_folder.mkdir()
    monkeypatch.setattr(lifecycle, "start", lambda folder, spec, _report: remember(folder, spec))

    def call(config: StackConfig) -> tuple[str, str]:
        out = io.StringIO()
        note = lab_command.start_for(project, "dev", config, Console(file=out, width=200))
        return out.getvalue(), note

    return call


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Make this machine another one."""
    return lambda facts: monkeypatch.setattr(nodes, "machine_facts", lambda: facts)


def chosen(project: Project, cluster_type: str) -> StackConfig:
    path = project.stack_file("dev")
    text = path.read_text().replace("cluster-type: caas", f"cluster-type: {cluster_type}")
    path.write_text(text)
    return read_valid(project, "dev")


def doctors(project: Project, config: StackConfig) -> list[Diagnosis]:
    return list(doctor_stack.lab(project, {}, config))


@pytest.mark.parametrize("kind", list(Kind))
def test_a_start_and_the_doctor_say_once_what_stands_for_kata(
    project: Project, start: Start, machine: Machine, kind: Kind
) -> None:
    machine(GOOD if kind is Kind.REAL else USER)
    config = chosen(project, "caas")
    (other,) = set(Kind) - {kind}
    before = [d.text for d in doctors(project, config)]
    said, _ = start(config)
    after = [d.text for d in doctors(project, config)]
    for texts in (said.splitlines(), before, after):
        assert texts.count(sentence(kind)) == 1
        assert sentence(other) not in texts
    assert any(text.startswith(f"nodes are {kind.value}: ") for text in before)
    assert f"nodes are {kind.value}" in after
    assert lab_of(project).kind() == kind.value


@pytest.mark.parametrize("cluster_type", ["rke2", "usernetes"])
def test_nothing_is_said_of_kata_where_a_cluster_has_none(
    project: Project, start: Start, machine: Machine, cluster_type: str
) -> None:
    machine(GOOD)
    config = chosen(project, cluster_type)
    said, _ = start(config)
    texts = [said, *(d.text for d in doctors(project, config))]
    assert "kata" not in "\n".join(texts)
    kind = "real" if cluster_type == "rke2" else "simulated"
    assert f"nodes are {kind}" in texts


def test_the_evidence_of_a_real_cluster_speaks_of_no_stand_in(project: Project) -> None:
    project.lab_folder.mkdir()
    remember(project.lab_folder, LabSpec("dev", (), (), "", kind=Kind.REAL))
    real = read_valid(project, "hgx-h100").section
    assert verify.remarks(project, real) == ()
    in_lab = verify.remarks(project, chosen(project, "caas").section)
    assert f"{sentence(Kind.REAL)}." in in_lab


def test_where_a_passing_shortage_kept_real_nodes_away_the_end_says_how_to_get_them(
    project: Project, start: Start, machine: Machine
) -> None:
    machine(FEW)
    _, note = start(chosen(project, "caas"))
    assert note.startswith(ANEW)
    assert "3 more inotify instances" in note
    # The shortage has passed; the lab has kept its nodes.
    machine(GOOD)
    _, note = start(chosen(project, "caas"))
    assert note == f"{ANEW} (`make down`, then `make up`): this machine can have real ones now"
    # Whoever cannot have them, or has no use for them, is not told of them.
    _, note = start(chosen(project, "usernetes"))
    assert note == ""
    machine(USER)
    _, note = start(chosen(project, "rke2"))
    assert note == ""


def test_the_doctor_says_that_the_lab_has_nodes_of_another_kind_than_asked_for(
    project: Project, machine: Machine
) -> None:
    machine(GOOD)
    project.lab_folder.mkdir()
    remember(project.lab_folder, LabSpec("dev", (), (), "", kind=Kind.REAL))
    path = project.stack_file("dev")
    path.write_text(path.read_text().replace("{nodes: auto}", "{nodes: simulated}"))
    said = doctors(project, read_valid(project, "dev"))
    (found,) = (d for d in said if d.text.startswith("nodes are to be simulated"))
    assert found.level is Level.FAILURE
    assert "has real nodes; remove it first with `gpu-clusters down`" in found.text


def test_addresses_of_the_lab_stay_whole_on_a_narrow_terminal(tmp_path: Path) -> None:
    host = parts.Part("host hgx-01", True, "operator@100.100.100.100:22", 0, 0, None)
    nodes = replace(host, name="kubelets", where=", ".join("abcdefghijklmnop"), stand_in="x!")
    out = io.StringIO()
    project = Project(tmp_path, tmp_path / "lab")
    shown = [one.as_json() for one in (host, nodes)]
    lab_command.show(project, shown, Console(file=out, width=40))
    assert "operator@100.100.100.100:22" in out.getvalue()
    assert "note: kubelets: x!" in out.getvalue()
