"""Which GPU sits in which module of the baseboard: as configured, as the machine answers, compared.

Partitions are made of modules, VMs are given PCI addresses. A wrong map connects one tenant's GPUs
and hands over another's, so it is read from the GPUs and never derived from the order of the bus.
Source: NVIDIA/gpu-admin-tools, `--query-module-name` (prints `SXM_1` to `SXM_8`; H100 and newer SXM
GPUs); WP-12736-002 for modules not following the order of the bus.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gpuclusters.core.finding import refused

TOOL = "nvidia_gpu_tools.py"


class MapSource(StrEnum):
    """Where the map comes from."""

    READ = "read"
    """From the GPUs; the configuration has to agree."""
    STATED = "stated"
    """From the configuration alone: for GPUs that cannot be asked without a driver (A100)."""


@dataclass(frozen=True, slots=True)
class ModuleReading:
    """What a machine answered about some PCI addresses."""

    modules: Mapping[str, int]
    """Module by address, of those that are known."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Process ids by address, of those that were not asked because a process has them."""
    silent: tuple[str, ...] = ()
    """Addresses that were asked and did not answer."""
    said: str = ""
    """What the tool said of these."""


def differences(configured: Mapping[int, str], reading: ModuleReading) -> Iterator[int]:
    """Modules of which the machine says something else than the configuration, in order."""
    address_of = {module: address for address, module in reading.modules.items()}
    for module, address in sorted(configured.items()):
        if (
            reading.modules.get(address, module) != module
            or address_of.get(module, address) != address
        ):
            yield module


def require_map(host: str, configured: Mapping[int, str], reading: ModuleReading) -> None:
    """Check that every GPU that could be asked sits where the configuration says.

    Args:
        host: the machine, as errors name it.
        configured: PCI address by module number.
        reading: what the machine answered.

    Raises:
        Refused: a difference, with both maps side by side and the lines to write; or a GPU
            that did not answer although nobody has it.
    """
    wrong = list(differences(configured, reading))
    if wrong:
        raise refused(
            host,
            "fabric.modules-differ",
            f"GPUs {', '.join(map(str, wrong))} are not at the PCI addresses of the configuration:\n"
            + _side_by_side(configured, reading),
            _to_write(configured, reading),
        )
    if reading.silent:
        by_address = {address: module for module, address in configured.items()}
        named = [f"GPU {by_address.get(a, '?')} ({a})" for a in reading.silent]
        words = f" ({reading.said})" if reading.said else ""
        raise refused(
            host,
            "fabric.module-silent",
            f"{', '.join(named)} did not say in which module it sits, while "
            f"{len(reading.modules)} others did{words}",
            "look at it with `lspci -vs` (`rev ff` is a GPU that fell off the bus) and "
            f"`{TOOL} --devices {reading.silent[0]} --query-module-name`; nothing was changed",
        )


def _side_by_side(configured: Mapping[int, str], reading: ModuleReading) -> str:
    address_of = {module: address for address, module in reading.modules.items()}
    lines = ["  module  configured    read"]
    for module in sorted(configured.keys() | address_of.keys()):
        ours = configured.get(module, "-")
        theirs = address_of.get(module)
        if theirs is None:
            theirs = "not read, in use" if ours in reading.held else "not read"
        mark = "" if ours == theirs or theirs.startswith("not") else "  <--"
        lines.append(f"  {module:<6}  {ours:<12}  {theirs}{mark}")
    return "\n".join(lines) + "\n"


def _to_write(configured: Mapping[int, str], reading: ModuleReading) -> str:
    address_of = {module: address for address, module in reading.modules.items()}
    right = dict(configured) | address_of
    lines = [f'    "{module}": "{address}"' for module, address in sorted(right.items())]
    return (
        "nothing was changed; if the board is right, write for this node:\n  gpus:\n"
        + "\n".join(lines)
    )


def unread(configured: Mapping[int, str], reading: ModuleReading) -> tuple[int, ...]:
    """Modules that could not be compared because a VM has their GPU."""
    return tuple(m for m, address in sorted(configured.items()) if address in reading.held)
