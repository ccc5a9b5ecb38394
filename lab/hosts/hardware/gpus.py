"""What a simulated host's GPUs carry from one tenant to the next: memory, knobs, firmware, links.

Kept in the host's `gpus.json`, because both the server (resets, clears) and whoever plays a tenant
(`tenant.py`) change it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from lab.files import read_json, write_json
from lab.hosts.faults import Faults, KnobsChanged
from lab.hosts.folder import HostFolder

DEFAULT_KNOBS: Final = {"ecc": "enabled", "mig": "disabled", "cc": "off", "ppcie": "off"}
"""Each knob's default, and by it which words its values are."""


class Gpu(BaseModel):
    """One GPU. A new one is as it comes out of a full recycling."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    data_of: str | None = None
    """The tenant whose data are in its memory."""
    reset_since_use: bool = True
    """Only after a reset (SBR) does clearing the memory clear it."""
    links_trained: bool = True
    """A reset drops the NVLinks; activating a partition of more than one GPU trains them."""
    knobs: dict[str, str] = Field(default_factory=lambda: dict(DEFAULT_KNOBS))
    pending_knobs: dict[str, str] = Field(default_factory=dict)
    """What the next reset makes of the knobs."""
    mig_instances: list[str] = Field(default_factory=list)
    """Profiles of the MIG instances that were made, in order; only in the mode that the knob `mig` says."""
    firmware: str | None = None
    """A version that is not the one the board came with."""

    def use(self, tenant: str) -> None:
        """A tenant's virtual machine ran here and left its data."""
        self.data_of = tenant
        self.reset_since_use = False

    def reset(self) -> None:
        """A secondary bus reset, after which the memory can be cleared."""
        self.knobs = {**self.knobs, **self.pending_knobs}
        self.pending_knobs = {}
        self.links_trained = False
        self.reset_since_use = True

    def clear_memory(self) -> None:
        """Clear the memory. Without a reset before, this reports success and clears nothing."""
        if self.reset_since_use:
            self.data_of = None

    def knob(self, name: str, module: int, faults: Faults) -> str:
        stuck = [f for f in faults.all(KnobsChanged) if f.module in {None, module}]
        return next((f.value for f in stuck if f.knob == name), self.knobs[name])


def read(host: HostFolder) -> dict[int, Gpu]:
    """The GPUs that somebody used or changed, by module number; all others are as new."""
    content = read_json(host.gpus) or {}
    return {int(module): Gpu.model_validate(gpu) for module, gpu in content.items()}


def read_one(host: HostFolder, module: int) -> Gpu:
    return read(host).get(module, Gpu())


@contextmanager
def change(host: HostFolder, module: int) -> Iterator[Gpu]:
    """One GPU to change; nobody else changes one of this host meanwhile."""
    lock = os.open(host.path / "gpus.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        gpus = read(host)
        gpu = gpus.setdefault(module, Gpu())
        yield gpu
        content = {str(number): one.model_dump() for number, one in sorted(gpus.items())}
        write_json(host.gpus, content)
    finally:
        os.close(lock)
