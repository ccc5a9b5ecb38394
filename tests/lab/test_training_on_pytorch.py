"""train.py with PyTorch, Debian's build for processors: ranks over gloo, on images that are made here."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from gpuclusters.proof import logs
from gpuclusters.proof.checks import Outcome
from gpuclusters.proof.cluster import Ended
from lab.tools import ToolError, pytorch
from tests.unit.proof.proof_world import inputs
from tests.unit.proof.test_training_program import SCRIPTS, write

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SECONDS = 300
"""For trainings that take ten, however slow the machine."""
SIDE, CLASSES = 28, 10
EPOCHS = 4


@pytest.fixture(scope="module")
def interpreter() -> pytorch.Interpreter:
    try:
        return pytorch.ensure()
    except ToolError as error:
        pytest.skip(f"no PyTorch: {error}")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As FashionMNIST's files: a picture for each class, and noise."""
    folder, numbers = tmp_path_factory.mktemp("images"), random.Random(1)
    pictures = [[numbers.randrange(256) for _ in range(SIDE**2)] for _ in range(CLASSES)]
    for part, count in (("train", 1024), ("t10k", 256)):
        labels = [numbers.randrange(CLASSES) for _ in range(count)]
        pixels = (numbers.gauss(point, 60) for label in labels for point in pictures[label])
        body = bytes(min(255, max(0, round(pixel))) for pixel in pixels)
        write(folder, f"{part}-images-idx3-ubyte", (count, SIDE, SIDE), body, packed=True)
        write(folder, f"{part}-labels-idx1-ubyte", (count,), bytes(labels))
    return folder


def train(
    interpreter: pytorch.Interpreter, data: Path, nodes: int, rank: int, port: int, *words: str
) -> subprocess.Popen[str]:
    pod = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(nodes),
        "RANK": str(rank),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [
            *(interpreter.python, "-B", SCRIPTS / "train.py", "--data", data),
            *("--epochs", str(EPOCHS), "--batch-size", "32", *words),
        ],
        env=interpreter.environment | pod,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_pods_train_one_network_and_it_is_no_proof_of_gpus(
    interpreter: pytorch.Interpreter, images: Path, own_port: int
) -> None:
    pods = [train(interpreter, images, 2, rank, own_port) for rank in range(2)]
    printed = [pod.communicate(timeout=SECONDS)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], printed
    said = logs.json_line(printed[0], "training")
    assert said is not None
    assert (said["backend"], said["nodes"], said["devices"]) == ("gloo", 2, ["cpu", "cpu"])
    assert said["accuracy"] > 0.8, "by chance it would be 0.1"
    wanted = inputs(nodes=[{"name": name, "gpus": 1} for name in ("a", "b")])
    assert wanted.training is not None
    check = logs.training(wanted, wanted.training, Ended(printed[0], 0))
    assert check.outcome is Outcome.FAILED
    assert "gloo" in check.said


def test_a_pod_with_two_ranks_ends_when_one_of_them_has_no_data(
    interpreter: pytorch.Interpreter, images: Path, own_port: int
) -> None:
    pod = train(interpreter, images / "nowhere", 1, 0, own_port, "--gpus", "2")
    said, _ = pod.communicate(timeout=SECONDS)
    assert pod.returncode == 2
    assert "train-images-idx3-ubyte is missing, and nothing is downloaded" in said


def test_a_rank_that_does_not_come_ends_the_training(
    interpreter: pytorch.Interpreter, images: Path, own_port: int
) -> None:
    pod = train(interpreter, images, 2, 0, own_port, "--wait-seconds", "3")
    said, _ = pod.communicate(timeout=SECONDS)
    assert pod.returncode not in (0, None)
    assert "Passed the barrier" not in said
