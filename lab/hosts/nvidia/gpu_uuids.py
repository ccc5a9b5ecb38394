"""The UUIDs of a simulated machine's GPUs: those that its driver shows, and its CDI specification names."""

from __future__ import annotations

import uuid

from lab.hosts.faults import Faults, GpuFellOffTheBus
from lab.hosts.machine import Machine
from lab.hosts.nvidia import driver
from lab.hosts.usernetes.rootless_faults import GpusReplaced


def gpu_uuid(name: str, module: int, generation: int = 0) -> str:
    """The UUID of one GPU. `generation`: how often the machine was made anew with other GPUs."""
    place = f"{name}/{module}" + (f"/{generation}" if generation else "")
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, place)}"


def on_the_bus(machine: Machine, faults: Faults) -> dict[int, str]:
    """UUID by module number of all GPUs that the bus shows."""
    replaced = faults.first(GpusReplaced)
    generation = replaced.generation if replaced else 0
    return {
        module: gpu_uuid(machine.name, module, generation)
        for module in sorted(machine.board.gpus)
        if faults.of_gpu(GpuFellOffTheBus, module) is None
    }


def served(machine: Machine, faults: Faults) -> tuple[str, ...]:
    """UUIDs of the GPUs that the driver serves, in the order of their index."""
    runs = driver.loaded(machine)
    if runs is None or not driver.serves(machine, runs):
        return ()
    return tuple(on_the_bus(machine, faults).values())
