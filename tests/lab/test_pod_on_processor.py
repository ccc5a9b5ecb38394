"""What a program that measures GPUs is told in a container whose GPUs have no driver."""

from __future__ import annotations

import pytest

from lab.pods.on_processor import arguments, counted


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
