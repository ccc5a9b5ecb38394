"""Runs a Python program in a real container whose GPUs have no driver: what measures them uses the processor.

    python -m lab.pods.on_processor PROGRAM [ARGUMENT…]

Only the program that multiplies matrices needs to be told; it then says in its output that it was a
processor. How many devices it plays is what the container was given. All other programs run as they are.
"""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_MEASURES = "matmul.py"
_CPU = "--cpu"
_GPU = re.compile(r"nvidia(\d+)")
_GROUP = re.compile(r"\d+")
_CAPABILITY = re.compile(r"nvidia-cap(\d+)")
CAPABILITIES_PER_INSTANCE = 2
"""An instance of MIG is a GPU instance and a compute instance: a device node for each."""
CAPABILITIES_PER_GPU = 16


def arguments(words: Sequence[str], devices: int) -> list[str]:
    """What Python is told instead of these words."""
    if not words or Path(words[0]).name != _MEASURES or _CPU in words:
        return [*words]
    return [*words, _CPU, "--devices", str(devices)]


def counted(nodes: Sequence[str], capabilities: Iterable[str]) -> int:
    """How many GPUs and instances of MIG a container with these device nodes has.

    The node of a divided GPU comes with each of its instances.

    Args:
        nodes: names in /dev, and in /dev/vfio: a virtual machine would have those GPUs inside.
        capabilities: names in /dev/nvidia-caps.
    """
    numbers = [int(found[1]) for name in capabilities if (found := _CAPABILITY.fullmatch(name))]
    divided = {number // CAPABILITIES_PER_GPU for number in numbers}
    gpus = {int(found[1]) for name in nodes if (found := _GPU.fullmatch(name))}
    groups = [name for name in nodes if _GROUP.fullmatch(name)]
    return len(numbers) // CAPABILITIES_PER_INSTANCE + len(gpus - divided) + len(groups)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def main(words: Sequence[str]) -> None:
    nodes = [*_names(Path("/dev")), *_names(Path("/dev/vfio"))]
    count = counted(nodes, _names(Path("/dev/nvidia-caps")))
    told = arguments(words, count)
    if told != [*words]:
        said = f"stand-in: {count} GPUs without a driver; this is measured on the processor"
        print(said, file=sys.stderr, flush=True)
    os.execv(sys.executable, [sys.executable, *told])  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
