"""The training of a lab without PyTorch: ranks over sockets, whose log proves nothing of GPUs."""

from __future__ import annotations

import os
import subprocess
import sys

from gpuclusters.proof import logs
from gpuclusters.proof.checks import Outcome
from gpuclusters.proof.cluster import Ended
from lab.pods import training
from tests.unit.proof.ladder_world import inputs

SECONDS = 120
"""For processes that take a few, however slow the machine."""


def train(rank: int, port: int, *words: str) -> subprocess.Popen[str]:
    pod = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "POD_IP": "127.0.0.1"}
    return subprocess.Popen(
        [sys.executable, "-B", training.__file__, "--data", "/nowhere", *words],
        env={"PATH": os.environ["PATH"], "WORLD_SIZE": "2", "RANK": str(rank), **pod},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_two_pods_with_two_ranks_each_train_one_model_and_their_log_is_proof(own_port: int) -> None:
    pods = [train(rank, own_port, "--gpus", "2") for rank in range(2)]
    printed = [pod.communicate(timeout=SECONDS)[0] for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], printed
    said = logs.json_line(printed[0], "training")
    assert said is not None
    assert (said["simulated"], said["nodes"], said["devices"]) == (True, 2, ["simulated"] * 4)
    wanted = inputs(simulated=True)
    part = wanted.training
    assert part is not None
    check = logs.training(wanted, part, Ended(printed[0], 0), 3.0)
    assert check.outcome is Outcome.PASSED, check.said
    assert check.figures["accuracy"] > 0.8, "it is computed, and it learns"
    real = inputs()
    assert logs.training(real, part, Ended(printed[0], 0)).outcome is Outcome.FAILED


def test_a_rank_that_does_not_come_is_named(own_port: int) -> None:
    pod = train(0, own_port, "--gpus", "2", "--wait-seconds", "1")
    said, _ = pod.communicate(timeout=SECONDS)
    assert pod.returncode == 1
    assert "ranks [2, 3] did not come to the barrier" in said


def test_a_rank_that_is_killed_ends_the_others(own_port: int) -> None:
    pods = [train(rank, own_port, "--epochs", "100000") for rank in range(2)]
    assert pods[0].stdout is not None
    until = iter(pods[0].stdout.readline, "")
    assert any(line.startswith("Train Epoch") for line in until)
    pods[1].kill()
    pods[1].communicate()
    pods[0].communicate(timeout=SECONDS)
    assert pods[0].returncode == 1
