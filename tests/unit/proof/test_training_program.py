"""train.py and reach.py as processes: data, and pods that look for each other."""

import gzip
import json
import os
import runpy
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuclusters.proof import logs
from gpuclusters.proof.checks import USERNETES, Outcome

SCRIPTS = Path(__file__).resolve().parents[3] / "gpuclusters/proof/scripts"
SECONDS = 120
"""For processes that take a few, however slow the machine."""


def start(program: str, *words: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-B", str(SCRIPTS / program), *words],
        env={"PATH": os.environ["PATH"], **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_without_pytorch_it_says_so_and_never_simulates_on_its_own(own_port: int) -> None:
    ranks = {"WORLD_SIZE": "1", "RANK": "0"}
    pod = start("train.py", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(own_port), **ranks)
    said, _ = pod.communicate(timeout=SECONDS)
    assert pod.returncode == 3
    assert "this image has no PyTorch" in said
    assert "simulated" not in said


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPTS / "train.py"))


def write(
    folder: Path, name: str, sizes: tuple[int, ...], body: bytes, *, packed: bool = False
) -> None:
    whole = bytes((0, 0, 8, len(sizes))) + struct.pack(f">{len(sizes)}I", *sizes) + body
    file = folder / (f"{name}.gz" if packed else name)
    file.write_bytes(gzip.compress(whole) if packed else whole)


def test_idx_files_are_read_plain_and_packed(tmp_path: Path, program: dict[str, Any]) -> None:
    write(tmp_path, "train-images-idx3-ubyte", (2, 2, 2), bytes(range(8)), packed=True)
    write(tmp_path, "train-labels-idx1-ubyte", (2,), b"\x03\x09")
    (sizes, pixels), (_, labels) = program["load"](tmp_path, "train")
    assert (sizes, pixels, labels) == ((2, 2, 2), bytes(range(8)), b"\x03\x09")


def test_data_that_are_wrong_are_named(tmp_path: Path, program: dict[str, Any]) -> None:
    def refused(said: str) -> None:
        with pytest.raises(program["DataError"], match=said):
            program["load"](tmp_path, "train")

    refused("no FashionMNIST in")
    images = "train-images-idx3-ubyte"
    write(tmp_path, "train-labels-idx1-ubyte", (2,), b"\x03\x09")
    write(tmp_path, images, (2, 2, 2), b"\x00" * 7)
    refused("cut off")
    write(tmp_path, images, (3, 1, 1), b"\x00" * 3)
    refused("do not go together")
    (tmp_path / images).write_bytes(b"<html>")
    refused("is no idx file")


@pytest.mark.parametrize(
    ("own", "count", "asked"),
    [(0, 1, []), (0, 2, [1]), (1, 3, [0, 2]), (0, 8, [1, 2, 4]), (7, 8, [0, 1, 3])],
)
def test_every_pod_is_asked_by_somebody(own: int, count: int, asked: list[int]) -> None:
    neighbours = runpy.run_path(str(SCRIPTS / "reach.py"))["neighbours"]
    assert neighbours(own, count) == asked
    assert {one for pod in range(count) for one in neighbours(pod, count)} == (
        set(range(count)) if count > 1 else set()
    )


def test_a_pod_that_is_not_found_is_named_and_it_goes_on_answering(own_port: int) -> None:
    pod = start(
        "reach.py", "--count", "2", "--service", "nowhere.invalid", "--port", str(own_port),
        "--seconds", "2", POD_NAME="reach-0", POD_IP="127.0.0.1", NODE_NAME="a",
    )  # fmt: skip
    assert pod.stdout is not None
    line = pod.stdout.readline()
    assert pod.poll() is None, "others may be later"
    pod.terminate()
    pod.communicate(timeout=SECONDS)
    assert pod.returncode == 0
    answer = logs.json_line(line, "reach")
    assert answer is not None
    check = logs.reached(USERNETES, answer)
    assert (check.subject, check.outcome) == ("a", Outcome.FAILED)
    assert "bad address reach-1.nowhere.invalid" in check.said


def test_an_exchange_is_whole_and_one_that_is_altered_is_noticed() -> None:
    module = runpy.run_path(str(SCRIPTS / "reach.py"))
    with module["Server"](("127.0.0.1", 0), module["Answering"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert module["exchange"]("127.0.0.1", server.server_address[1]) == os.environ.get(
            "NODE_NAME", "?"
        )
        server.shutdown()
    assert logs.json_line("noise\n{broken\n" + json.dumps({"proof": "other"}), "reach") is None
