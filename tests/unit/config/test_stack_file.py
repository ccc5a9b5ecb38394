"""A stack file is read as Pulumi reads it, and a broken one is one clear sentence.

Rows are in stack_file.yaml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.config import fault
from gpuclusters.config.stack import StackConfig, check_stack_file, read_stack_file
from tests.fixtures.tables import beside
from tests.unit.config.documents import lines

CASES = beside(__file__, "stack_file.yaml")
CAAS = """\
config:
  gpu-clusters:cluster-type: caas
  gpu-clusters:caas: {name: dev, platform: dgx-h100, hosts: {source: lab}, kubernetes: {source: lab},
    nodes: [{name: a}], partition-layout: [8]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Pulumi.dev.yaml"


@pytest.mark.parametrize(("keys", "read"), CASES["read"])
def test_values_are_what_pulumi_takes_them_for(file: Path, keys: str, read: Any) -> None:
    file.write_text(f"config:\n  {keys}\n")
    assert read_stack_file(file) == read


@pytest.mark.parametrize(
    ("text", "said"), [*CASES["refused"], ("[" * 400, "")], ids=lambda text: repr(text)[:30]
)
def test_what_is_no_stack_file_is_refused_in_one_sentence(
    file: Path, text: str | bytes, said: str
) -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    checked = check_stack_file(file)
    assert isinstance(checked, list)
    assert all(len(str(fault).splitlines()) == 1 for fault in checked)
    assert re.search(said, lines(checked)[0])
    assert "hunter2" not in str(checked)


def test_a_missing_file_is_named(file: Path) -> None:
    (fault,) = read_stack_file(file)
    assert fault.problem.startswith("does not exist")


@pytest.mark.parametrize(("section", "nodes"), CASES["lab"])
def test_the_lab_has_a_section_of_its_own_beside_the_cluster_types(
    file: Path, section: str, nodes: str
) -> None:
    file.write_text(CAAS + (f"  gpu-clusters:lab: {section}\n" if section else ""))
    checked = check_stack_file(file)
    assert isinstance(checked, StackConfig)
    assert checked.section.nodes[0].name == "a"
    assert checked.lab.nodes == nodes


@pytest.mark.parametrize(("section", "said"), CASES["lab-refused"])
def test_what_is_wrong_in_the_section_of_the_lab_is_said(
    file: Path, section: str, said: str
) -> None:
    file.write_text(CAAS + f"  gpu-clusters:lab: {section}\n")
    checked = check_stack_file(file)
    assert isinstance(checked, list)
    assert said in "\n".join(lines(checked))


def test_a_fault_is_said_with_the_line_that_it_is_on(file: Path) -> None:
    file.write_text(
        "encryptionsalt: v1:x\nconfig:\n  gpu-clusters:cluster-type: caas\n  gpu-clusters:caas:\n"
        "    nodes:\n      - {name: a, color: red}\n      - name: b\n        color: blue\n"
        "    partition-layout: 7\n"
    )
    found = check_stack_file(file)
    assert isinstance(found, list)
    at = {line.split(": ")[1]: int(line.split(":")[1]) for line in fault.lines(file, found)}
    assert at["caas.nodes[0].color"] == 6
    assert at["caas.nodes[1].color"] == 8
    assert at["caas.partition-layout"] == 9
    assert at["caas.platform"] == 4, "what is missing belongs to its section"
    away = file.with_name("Pulumi.away.yaml")
    assert fault.lines(away, found)[0].startswith("Pulumi.away.yaml: caas.")
