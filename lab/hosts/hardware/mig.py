"""MIG on simulated GPUs: profiles with their numbers and sizes, and which of them fit together.

Source: NVIDIA's MIG User Guide (profiles of A100 80 GB, `nvidia-smi mig -lgip`; placement by memory slices).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.hosts.hardware.board import Board

COMPUTE_SLICES, MEMORY_SLICES = 7, 8


@dataclass(frozen=True, slots=True)
class Profile:
    number: int
    """What `nvidia-smi mig -cgi` calls it."""
    compute: int
    memory: int


_EIGHTY: Mapping[str, Profile] = {
    "1g.10gb": Profile(19, 1, 1),
    "1g.20gb": Profile(15, 1, 2),
    "2g.20gb": Profile(14, 2, 2),
    "3g.40gb": Profile(9, 3, 4),
    "4g.40gb": Profile(5, 4, 4),
    "7g.80gb": Profile(0, 7, 8),
}
_BY_DEVICE: Mapping[str, Mapping[str, Profile]] = {"20b2": _EIGHTY, "2330": _EIGHTY}


def profiles(board: Board) -> Mapping[str, Profile]:
    """The profiles of a board's GPUs by name; none where they have no MIG."""
    device = next((gpu.device for gpu in board.gpus.values()), "")
    return _BY_DEVICE.get(device, {})


def problem(board: Board, instances: Sequence[str]) -> str | None:
    """Why these instances do not fit on one GPU; None if they do."""
    known = profiles(board)
    unknown = [name for name in instances if name not in known]
    if unknown:
        return f"the GPU has no profile {unknown[0]}; it has: {', '.join(known) or 'none'}"
    compute = sum(known[name].compute for name in instances)
    memory = sum(known[name].memory for name in instances)
    if compute > COMPUTE_SLICES or memory > MEMORY_SLICES:
        return "Insufficient Resources"
    return None
