"""A stack file is read as Pulumi reads it, and a broken one is one clear sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gpuclusters.config import fault
from gpuclusters.config.stack import StackConfig, check_stack_file, read_stack_file
from tests.unit.config.documents import lines


def _file(folder: Path, text: str) -> Path:
    path = folder / "Pulumi.dev.yaml"
    path.write_text(text)
    return path


def _refused(folder: Path, text: str | bytes) -> str:
    path = folder / "Pulumi.dev.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    read = read_stack_file(path)
    assert isinstance(read, list)
    (fault,) = read
    return lines([fault])[0]


def test_words_that_yaml_1_1_took_for_truth_values_and_times_stay_text(tmp_path: Path) -> None:
    read = read_stack_file(
        _file(
            tmp_path,
            "config:\n  gpu-clusters:caas: {a: off, b: on, c: yes, d: 0000:10:00.0, e: 2026-01-01, "
            "f: 1:30, g: 1_000}\n",
        )
    )
    assert read == {
        "caas": {
            "a": "off",
            "b": "on",
            "c": "yes",
            "d": "0000:10:00.0",
            "e": "2026-01-01",
            "f": "1:30",
            "g": "1_000",
        }
    }


def test_numbers_truth_values_and_nothing_are_themselves(tmp_path: Path) -> None:
    text = (
        "config:\n  gpu-clusters:caas: {a: 1, b: -2, c: 1.5, d: true, e: null, f: ~, g: , h: '1'}\n"
    )
    read = read_stack_file(_file(tmp_path, text))
    assert isinstance(read, dict)
    assert read["caas"] == {
        "a": 1,
        "b": -2,
        "c": 1.5,
        "d": True,
        "e": None,
        "f": None,
        "g": None,
        "h": "1",
    }


def test_keys_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    read = read_stack_file(_file(tmp_path, "config:\n  gcp:project: x\n  gpu-clusters:name: y\n"))
    assert read == {"name": "y"}


def test_a_file_without_configuration_lacks_a_cluster_type(tmp_path: Path) -> None:
    checked = check_stack_file(_file(tmp_path, ""))
    assert isinstance(checked, list)
    assert "cluster-type: is missing" in lines(checked)[0]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (fault,) = read_stack_file(tmp_path / "Pulumi.prod.yaml")
    assert fault.problem.startswith("does not exist")


def test_a_syntax_error_is_given_with_line_and_column(tmp_path: Path) -> None:
    said = _refused(tmp_path, "config:\n  gpu-clusters:caas: {name: dev\n  x: [\n")
    assert "is not YAML" in said
    assert "line " in said
    assert "column " in said


def test_a_key_that_stands_twice_is_refused_where_it_stands_again(tmp_path: Path) -> None:
    said = _refused(tmp_path, "config:\n  gpu-clusters:caas:\n    name: a\n    name: b\n")
    assert "the key 'name' stands twice (got line 4, column 5)" in said


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe\x00",
        "[1, 2]",
        "config: [1]",
        "config: text",
        "a: b: c",
        "\t",
        "config: !!python/object/apply:os.system ['true']",
        "config: {? [1] : 2}",
        "[" * 400,
        "a: &a [*a]",
        "\x00",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_what_is_no_stack_file_is_refused_in_one_sentence(
    tmp_path: Path, text: str | bytes
) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    checked = check_stack_file(path)
    assert isinstance(checked, list)
    assert all(len(str(fault).splitlines()) == 1 for fault in checked)


def test_a_secret_in_clear_is_refused_and_not_shown(tmp_path: Path) -> None:
    said = _refused(tmp_path, "config:\n  gpu-clusters:kubeconfig: hunter2\n")
    assert "kubeconfig: is not encrypted" in said
    assert "hunter2" not in said


def test_an_encrypted_secret_is_no_part_of_the_document(tmp_path: Path) -> None:
    read = read_stack_file(_file(tmp_path, "config:\n  gpu-clusters:kubeconfig: {secure: v1:x}\n"))
    assert read == {}


def test_a_right_file_gives_the_configuration(tmp_path: Path) -> None:
    text = (
        "config:\n  gpu-clusters:cluster-type: caas\n  gpu-clusters:caas:\n    name: dev\n"
        "    platform: dgx-h100\n    hosts: {source: lab}\n    kubernetes: {source: lab}\n"
        "    nodes: [{name: a}]\n    partition-layout: [8]\n"
    )
    checked = check_stack_file(_file(tmp_path, text))
    assert isinstance(checked, StackConfig)
    assert checked.section.nodes[0].name == "a"


def test_a_stack_file_is_checked_without_loading_pulumi() -> None:
    program = "import sys, gpuclusters.config.stack; sys.exit('pulumi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


_CAAS = """\
config:
  gpu-clusters:cluster-type: caas
  gpu-clusters:caas: {name: dev, platform: dgx-h100, hosts: {source: lab}, kubernetes: {source: lab},
    nodes: [{name: a}], partition-layout: [8]}
"""


@pytest.mark.parametrize(
    ("section", "nodes"),
    [
        ("", "auto"),
        ("  gpu-clusters:lab: {}\n", "auto"),
        ("  gpu-clusters:lab: {nodes: real}\n", "real"),
    ],
)
def test_the_lab_has_a_section_of_its_own_beside_the_cluster_types(
    tmp_path: Path, section: str, nodes: str
) -> None:
    checked = check_stack_file(_file(tmp_path, _CAAS + section))
    assert isinstance(checked, StackConfig)
    assert checked.lab.nodes == nodes


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{nodes: minikube}", "lab.nodes: "),
        ("{node: real}", "did you mean nodes?"),
        ("[real]", "lab: is not a mapping"),
        ("{secure: abc}", "lab: is encrypted"),
    ],
)
def test_what_is_wrong_in_the_section_of_the_lab_is_said_with_the_rest(
    tmp_path: Path, section: str, said: str
) -> None:
    wrong = _CAAS.replace("[8]", "[3]") + f"  gpu-clusters:lab: {section}\n"
    checked = check_stack_file(_file(tmp_path, wrong))
    assert isinstance(checked, list)
    assert said in "\n".join(lines(checked))


def test_a_fault_is_said_with_the_line_that_it_is_on(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.mine.yaml"
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
    away = tmp_path / "Pulumi.away.yaml"
    assert fault.lines(away, found)[0].startswith("Pulumi.away.yaml: caas.")
