"""What a program that measures GPUs is told in a container whose GPUs have no driver."""

from __future__ import annotations

import pytest

from lab.pods.on_processor import arguments, counted


def test_the_program_that_measures_is_told_the_devices_of_its_container() -> None:
    told = arguments(["/proof/matmul.py", "--size", "8192"], 2)
    assert told == ["/proof/matmul.py", "--size", "8192", "--cpu", "--devices", "2"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["-c", "print(1)"],
        ["/proof/train.py", "--gpus", "2"],
        ["/proof/matmul.py", "--cpu", "--only", "cpu-0"],
    ],
)
def test_other_programs_run_as_they_are(words: list[str]) -> None:
    assert arguments(words, 2) == words


def test_gpus_are_counted_by_their_device_nodes() -> None:
    nodes = ["null", "nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-caps"]
    assert counted(nodes, ()) == 2
    assert counted(["null"], ()) == 0
    assert counted(["null", "vfio", "17", "23"], ()) == 2, (
        "groups that a virtual machine would have"
    )


def test_instances_of_mig_count_instead_of_their_gpu() -> None:
    nodes = ["nvidia0", "nvidiactl"]
    assert counted(nodes, ["nvidia-cap12", "nvidia-cap13", "nvidia-cap21", "nvidia-cap22"]) == 2
