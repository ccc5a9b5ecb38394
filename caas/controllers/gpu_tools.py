"""What `nvidia_gpu_tools.py` says, read with mistrust.

The tool exits 0 when a GPU could not be reset because the bridge above it is out of reach, and when
clearing its memory is not supported: it only writes a line of level ERROR. So what it did counts only
if it exits 0 and no line of its log is of level ERROR or CRITICAL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from caas.controllers.hosts import Done

_FAULT = re.compile(
    r"^(?:(?:\S+\s+){0,2}(?:ERROR|CRITICAL)\b\s*|(?:\w+\.)*Gpu\w*: )(.*)$", re.MULTILINE
)
"""A line of its log of level ERROR or above, or the last line of a traceback about a GPU."""
_KNOBS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    "ecc": ("--query-ecc-state", re.compile(r"\bECC is (\w+)\s*$", re.MULTILINE)),
    "mig": ("--query-mig-mode", re.compile(r"\bMIG mode is (\w+)\s*$", re.MULTILINE)),
    "cc": ("--query-cc-mode", re.compile(r"\bCC mode is (\w+)\s*$", re.MULTILINE)),
    "ppcie": ("--query-ppcie-mode", re.compile(r"\bPPCIe mode is (\w+)\s*$", re.MULTILINE)),
}


def reset(pci: str) -> Sequence[str]:
    """Words of the command that resets a GPU."""
    return [*_tool(pci), "--reset-with-sbr"]


def clear_memory(pci: str) -> Sequence[str]:
    """Words of the command that clears a GPU's memory, reset first: else it clears nothing."""
    return [*_tool(pci), "--clear-memory", "--reset-with-sbr"]


def query(pci: str, knobs: Iterable[str]) -> Sequence[str]:
    """Words of the command that reads these knobs; those that the tool does not know are left out."""
    return [*_tool(pci), *(_KNOBS[name][0] for name in knobs if name in _KNOBS)]


def complaint(done: Done) -> str | None:
    """What the tool says went wrong, in one line; None when nothing did."""
    said = _FAULT.findall(done.stdout + "\n" + done.stderr)
    if said:
        return str(said[0]).strip()[:300]
    if done.code == 0:
        return None
    last = (done.stderr or done.stdout).strip().splitlines()
    return f"exit code {done.code}: {last[-1][:200] if last else 'no output'}"


def verdict(done: Done) -> bool:
    """Whether a complaint is the tool's own word, which asking again would not change."""
    return _FAULT.search(done.stdout + "\n" + done.stderr) is not None


def knobs(done: Done) -> dict[str, str]:
    """The knobs that the answer states."""
    text = done.stdout + "\n" + done.stderr
    found = {name: pattern.search(text) for name, (_, pattern) in _KNOBS.items()}
    return {name: match[1] for name, match in found.items() if match is not None}


def _tool(pci: str) -> list[str]:
    # One at a time per GPU, also across controllers: what a dead one began is not met by another.
    # The GPU's own folder is the lock, which is there where the GPU is.
    lock = f"/sys/bus/pci/devices/{pci}"
    return ["flock", "--nonblock", lock, "nvidia_gpu_tools.py", "--devices", pci]
