"""Trains a small network on FashionMNIST with all GPUs of all nodes; its last line of JSON says how well.

PyTorch's DistributedDataParallel over NCCL, or over gloo where there is no CUDA, which whoever reads the
output takes for what it is. One pod per node; MASTER_ADDR, MASTER_PORT, WORLD_SIZE (pods) and RANK (of this
pod) say how they find each other, as in a PyTorchJob, and --gpus how many ranks this pod starts. Every rank
goes through all images in an order of its own, as the program did whose times are known for V100s: the
work of a node stays the same with more nodes, and what grows is the network's part.

The data are read from a folder with the four idx files, plain or .gz. They are never downloaded.

    python3 train.py --data /data --epochs 4 --batch-size 128 --gpus 1
"""

import argparse
import contextlib
import gzip
import json
import math
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

WAIT_SECONDS = 600
MEAN, DEVIATION = 0.2860, 0.3530
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
NO_DATA, NO_TORCH = 2, 3


def say(text):
    """One line at once: what is held back is lost when a rank is killed."""
    print(text, flush=True)


class DataError(Exception):
    """The data are not there or not what they should be."""


def read_idx(path):
    """Dimensions and bytes of an idx file of unsigned bytes."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        head = file.read(4)
        if len(head) != 4 or head[:3] != b"\0\0\x08":
            raise DataError(f"{path} is no idx file of bytes")
        sizes = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        body = file.read()
    if len(body) != math.prod(sizes):
        raise DataError(f"{path} is cut off: {len(body)} bytes for {sizes}")
    return sizes, body


def find(folder, name):
    """A file of the data set, plain or packed."""
    for path in (Path(folder) / name, Path(folder) / f"{name}.gz"):
        if path.is_file():
            return path
    raise DataError(f"no FashionMNIST in {folder}: {name} is missing, and nothing is downloaded")


def load(folder, part):
    """Images and labels of `train` or `test`, as (sizes, bytes) each."""
    images, labels = (read_idx(find(folder, name)) for name in FILES[part])
    if images[0][0] != labels[0][0]:
        raise DataError(
            f"{folder}: {images[0][0]} images and {labels[0][0]} labels do not go together"
        )
    return images, labels


def network(torch):
    """Two convolutions and two layers."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


def tensors(torch, folder, part, device):
    """Images scaled as the network expects them, and labels."""
    (sizes, pixels), (_, labels) = load(folder, part)
    raw = torch.frombuffer(bytearray(pixels), dtype=torch.uint8).view(sizes[0], 1, *sizes[1:])
    told = torch.frombuffer(bytearray(labels), dtype=torch.uint8)
    return ((raw.to(device).float() / 255 - MEAN) / DEVIATION), told.to(device).long()


def with_torch(options, rank, world):
    """One rank."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    cuda = torch.cuda.is_available()
    device = (
        torch.device("cuda", options.local if torch.cuda.device_count() > 1 else 0)
        if cuda
        else torch.device("cpu")
    )
    if cuda:
        torch.cuda.set_device(device)
    backend = "nccl" if cuda else "gloo"
    torch.manual_seed(options.seed)
    images, labels = tensors(torch, options.data, "train", device)
    address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    dist.init_process_group(
        backend,
        init_method=address,
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=options.wait_seconds),
    )
    names = [None] * world
    dist.all_gather_object(names, torch.cuda.get_device_name(device) if cuda else "cpu")
    dist.barrier()
    if rank == 0:
        say(f"Passed the barrier with {options.nodes} nodes, {world} ranks")
    model = network(torch).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[device.index] if cuda else None
    )
    optimiser = torch.optim.SGD(ddp.parameters(), lr=options.lr, momentum=0.5)
    order = torch.Generator().manual_seed(options.seed * 1000 + rank)
    started = time.monotonic()
    for epoch in range(1, options.epochs + 1):
        epoch_of(torch, ddp, optimiser, images, labels, order, options, epoch, rank)
    dist.barrier()
    if rank == 0:
        found = {"backend": backend, "nodes": options.nodes, "devices": names}
        found["trained_seconds"] = round(time.monotonic() - started, 1)
        accuracy, loss = judged(torch, model, *tensors(torch, options.data, "test", device))
        found |= {"accuracy": round(accuracy, 4), "loss": round(loss, 4)}
        say(json.dumps({"proof": "training", **found}))
    dist.barrier()
    dist.destroy_process_group()


def epoch_of(torch, model, optimiser, images, labels, order, options, epoch, rank):
    """Once through all images."""
    count = len(images)
    shuffled = torch.randperm(count, generator=order).to(images.device)
    for step, begin in enumerate(range(0, count, options.batch_size)):
        chosen = shuffled[begin : begin + options.batch_size]
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimiser.step()
        if rank == 0 and step % 100 == 0:
            say(
                f"Train Epoch: {epoch} [{begin}/{count} ({100 * begin // count}%)]\tloss={loss.item():.4f}"
            )


def judged(torch, model, images, labels):
    """Accuracy and loss on images that it has not seen."""
    model.eval()
    right, total = 0, 0.0
    with torch.no_grad():
        for begin in range(0, len(images), 1000):
            part, told = images[begin : begin + 1000], labels[begin : begin + 1000]
            answer = model(part)
            total += torch.nn.functional.cross_entropy(answer, told, reduction="sum").item()
            right += int((answer.argmax(1) == told).sum())
    return right / len(images), total / len(images)


def spawn(options):
    """One process for each GPU of this pod; the first that fails ends the others."""
    # As this process was started, whatever stands before the program; older Pythons do not tell.
    words = getattr(sys, "orig_argv", [sys.executable, __file__, *sys.argv[1:]])[1:]
    own = [sys.executable, *words]
    started = [subprocess.Popen([*own, "--local", str(n)]) for n in range(options.gpus)]
    code = 0
    try:
        while any(process.poll() is None for process in started) and not code:
            time.sleep(0.2)
            code = next((p.returncode for p in started if p.returncode), 0)
    finally:
        for process in started:
            process.kill()
    return code or next((p.wait() for p in started if p.wait()), 0)


def parsed():
    """Options, and what the environment says of the ranks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/data", help="folder with the idx files")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=128, help="of each rank")
    parser.add_argument("--gpus", type=int, default=1, help="ranks of this pod")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--wait-seconds", type=int, default=WAIT_SECONDS, help="for the others")
    parser.add_argument("--local", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.nodes = int(os.environ["WORLD_SIZE"])
    return options, int(os.environ["RANK"])


def main():
    """All ranks of this pod, or one of them."""
    options, pod = parsed()
    if options.local is None and options.gpus > 1:
        return spawn(options)
    options.local = options.local or 0
    rank, world = pod * options.gpus + options.local, options.nodes * options.gpus
    try:
        with_torch(options, rank, world)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        say("this image has no PyTorch: name one that has, for a CUDA that the driver knows")
        return NO_TORCH
    except DataError as error:
        say(str(error))
        return NO_DATA
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
