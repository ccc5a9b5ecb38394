"""Plays the training of a ladder where there is no PyTorch: the same ranks over real sockets, and no GPU.

A linear model in plain Python on data that it makes; its accuracy is computed, and says nothing about GPUs.
Ranks, options and what is printed are those of the program of that name, whose place it takes: see `in_pod`.
"""

from __future__ import annotations

import argparse
import array
import json
import math
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

CLASSES, FEATURES, SAMPLES = 10, 16, 300
WAIT_SECONDS = 600
Sample = tuple[list[float], int]
"""Where it lies, and its class."""
Weights = list[list[float]]


class LostError(Exception):
    """Another rank is not there."""


@dataclass(frozen=True, slots=True)
class Options:
    nodes: int
    gpus: int
    epochs: int
    batch_size: int
    seed: int
    wait_seconds: float

    @property
    def ranks(self) -> int:
        return self.nodes * self.gpus


class Links:
    """The ranks: all talk to rank 0, which sums up and answers."""

    def __init__(self, rank: int, options: Options) -> None:
        self._rank = rank
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        deadline = time.monotonic() + options.wait_seconds
        if rank == 0:
            self._peers = _accepted(port, options.ranks, deadline)
        else:
            self._peers = [_connected(host, port, deadline)]
            self._peers[0].sendall(struct.pack(">I", rank))

    def summed(self, numbers: Iterable[float]) -> list[float]:
        """The sum of all ranks' numbers, the same on each."""
        if self._rank:
            _put(self._peers[0], numbers)
            return _taken(self._peers[0])
        total = list(numbers)
        for peer in self._peers:
            total = [a + b for a, b in zip(total, _taken(peer), strict=True)]
        for peer in self._peers:
            _put(peer, total)
        return total


def _accepted(port: int, world: int, deadline: float) -> list[socket.socket]:
    found: dict[int, socket.socket] = {}
    with socket.create_server((os.environ.get("POD_IP", ""), port)) as server:
        while len(found) < world - 1:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                peer, _ = server.accept()
            except TimeoutError:
                gone = sorted(set(range(1, world)) - set(found))
                raise LostError(f"ranks {gone} did not come to the barrier") from None
            peer.settimeout(WAIT_SECONDS)
            (rank,) = struct.unpack(">I", _received(peer, 4))
            found[rank] = peer
    return [found[rank] for rank in sorted(found)]


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    while True:
        try:
            return socket.create_connection((host, port), timeout=WAIT_SECONDS)
        except OSError as error:
            if time.monotonic() > deadline:
                raise LostError(f"rank 0 at {host}:{port} was not reached: {error}") from None
            time.sleep(0.1)


def _received(peer: socket.socket, size: int) -> bytes:
    """Exactly so many bytes."""
    whole = b""
    while len(whole) < size:
        part = peer.recv(size - len(whole))
        if not part:
            raise LostError("another rank hung up")
        whole += part
    return whole


def _put(peer: socket.socket, numbers: Iterable[float]) -> None:
    body = array.array("d", numbers).tobytes()
    peer.sendall(struct.pack(">I", len(body)) + body)


def _taken(peer: socket.socket) -> list[float]:
    (size,) = struct.unpack(">I", _received(peer, 4))
    return list(array.array("d", _received(peer, size)))


def _made(seed: int, centres: Sequence[Sequence[float]]) -> list[Sample]:
    """Samples around the centres of their classes."""
    numbers = random.Random(seed)  # noqa: S311
    labels = [numbers.randrange(CLASSES) for _ in range(SAMPLES)]
    return [([c + numbers.gauss(0, 0.7) for c in centres[label]], label) for label in labels]


def _chances(weights: Weights, sample: Sequence[float]) -> list[float]:
    """Probability of each class."""
    scores = [sum(map(float.__mul__, row, sample)) + row[-1] for row in weights]
    top = max(scores)
    parts = [math.exp(score - top) for score in scores]
    whole = sum(parts)
    return [part / whole for part in parts]


def _loss(chances: Sequence[float], label: int) -> float:
    return -math.log(max(chances[label], 1e-12))


def _step(links: Links, weights: Weights, batch: Sequence[Sample]) -> float:
    """One step down the gradient of all ranks' batches; the mean loss."""
    width = FEATURES + 1
    slope, loss = [0.0] * (CLASSES * width), 0.0
    for sample, label in batch:
        chances = _chances(weights, sample)
        loss += _loss(chances, label)
        for number in range(CLASSES):
            error = chances[number] - (number == label)
            for place, value in enumerate((*sample, 1.0)):
                slope[number * width + place] += error * value
    *slope, loss, count = links.summed([*slope, loss, float(len(batch))])
    for number in range(CLASSES):
        for place in range(width):
            weights[number][place] -= 0.5 * slope[number * width + place] / count
    return loss / count


def _say(text: str) -> None:
    print(text, flush=True)


def train(rank: int, options: Options) -> None:
    """One rank: a linear model, its gradients summed over all ranks after each batch."""
    links = Links(rank, options)
    links.summed([1.0])
    say = _say if rank == 0 else lambda _: None
    say(f"Passed the barrier with {options.nodes} nodes, {options.ranks} ranks")
    numbers = random.Random(options.seed)  # noqa: S311
    centres = [[numbers.gauss(0, 1) for _ in range(FEATURES)] for _ in range(CLASSES)]
    samples = _made(options.seed * 1000 + rank + 1, centres)
    weights = [[0.0] * (FEATURES + 1) for _ in range(CLASSES)]
    started = time.monotonic()
    for epoch in range(1, options.epochs + 1):
        for begin in range(0, SAMPLES, options.batch_size):
            loss = _step(links, weights, samples[begin : begin + options.batch_size])
        say(f"Train Epoch: {epoch} [{SAMPLES}/{SAMPLES} (100%)]\tloss={loss:.4f}")
    seconds = round(time.monotonic() - started, 1)
    seen = [
        (_chances(weights, sample), label) for sample, label in _made(options.seed * 1000, centres)
    ]
    right = sum(max(range(CLASSES), key=chances.__getitem__) == label for chances, label in seen)
    loss = sum(_loss(*one) for one in seen)
    found = {"proof": "training", "simulated": True, "nodes": options.nodes}
    found |= {"devices": ["simulated"] * options.ranks, "trained_seconds": seconds}
    found |= {"accuracy": round(right / SAMPLES, 4), "loss": round(loss / SAMPLES, 4)}
    say(json.dumps(found))
    links.summed([1.0])


def main() -> int:
    """All ranks of this pod."""
    parser = argparse.ArgumentParser(description="Plays a training without PyTorch.")
    parser.add_argument("--data", help="of the real one; not read")
    for name, least in (("epochs", 4), ("batch-size", 128), ("gpus", 1), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=least)
    parser.add_argument("--wait-seconds", type=float, default=WAIT_SECONDS)
    given = vars(parser.parse_args())
    given.pop("data")
    options = Options(nodes=int(os.environ["WORLD_SIZE"]), **given)
    first = int(os.environ["RANK"]) * options.gpus
    pool = ThreadPoolExecutor(options.gpus)
    ranks = [pool.submit(train, first + local, options) for local in range(options.gpus)]
    try:
        for rank in as_completed(ranks):
            rank.result()
    except (LostError, OSError) as error:
        print(error, file=sys.stderr, flush=True)
        # Its other ranks wait for one that is gone.
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
