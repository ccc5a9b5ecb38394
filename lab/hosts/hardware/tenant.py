"""Plays a tenant on a simulated host: uses GPUs, leaves data, turns knobs, tampers with firmware.

    found = use(folder, "hgx-01", [1, 3], "acme", knobs={"ecc": "disabled"})

What a tenant must never find, what another one left, is returned and goes into the host's journal as
`harm`; a test of the hand-over asserts that there is none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.files import read_json
from lab.hosts import journal
from lab.hosts.folder import HostFolder, HostsFolder
from lab.hosts.hardware import gpus
from lab.hosts.hardware.board import board
from lab.hosts.model import HostsError


def use(
    folder: Path,
    host: str,
    modules: Sequence[int],
    tenant: str,
    *,
    knobs: Mapping[str, str] | None = None,
    firmware: str | None = None,
) -> list[str]:
    """A tenant's virtual machine ran on these GPUs.

    Args:
        folder: the folder of all hosts.
        host: the host's name.
        modules: module numbers of the GPUs.
        tenant: whose data are in their memory afterwards.
        knobs: what the tenant changed: ecc and mig to enabled or disabled, cc to on, off or
            devtools, ppcie to on or off. Takes effect at once, as if the tenant had reset the GPU.
        firmware: the version that the tenant managed to put on the GPUs.

    Returns:
        A sentence for each GPU on which another tenant's data or changes were found.

    Raises:
        HostsError: no such host, GPU or knob.
    """
    entry = _entry(folder, host, modules)
    changed = dict(knobs or {})
    unknown = sorted(set(changed) - set(gpus.DEFAULT_KNOBS))
    if unknown:
        known = ", ".join(gpus.DEFAULT_KNOBS)
        raise HostsError(f"a GPU has no knob {', '.join(unknown)}; it has {known}")
    harm: list[str] = []
    for module in modules:
        with gpus.change(entry, module) as gpu:
            harm += _found(module, gpu, tenant, alone=len(modules) == 1)
            gpu.use(tenant)
            gpu.knobs = {**gpu.knobs, **changed}
            gpu.firmware = firmware or gpu.firmware
    for what in harm:
        journal.write(entry, "harm", what=what, tenant=tenant)
    return harm


def repair(folder: Path, host: str, modules: Sequence[int]) -> None:
    """What a technician does: the GPUs are as new."""
    entry = _entry(folder, host, modules)
    for module in modules:
        with gpus.change(entry, module) as gpu:
            for name, value in gpus.Gpu():
                setattr(gpu, name, value)


def state(folder: Path, host: str, module: int) -> gpus.Gpu:
    """One GPU as it is now, whatever the host's commands say about it."""
    return gpus.read_one(_entry(folder, host, [module]), module)


def _found(module: int, gpu: gpus.Gpu, tenant: str, *, alone: bool) -> list[str]:
    found: list[str] = []
    if gpu.data_of not in {None, tenant}:
        found.append(f"{tenant} found data of {gpu.data_of} on GPU {module}")
    if gpu.knobs != gpus.DEFAULT_KNOBS and gpu.data_of != tenant:
        found.append(f"{tenant} found changed knobs on GPU {module}")
    if gpu.firmware and gpu.data_of != tenant:
        found.append(f"{tenant} found changed firmware on GPU {module}")
    if not alone and not gpu.links_trained:
        found.append(f"{tenant} found GPU {module} without NVLinks")
    return found


def _entry(folder: Path, host: str, modules: Sequence[int]) -> HostFolder:
    entry = HostsFolder(folder).existing(host)
    there = board(read_json(entry.identity)["platform"]).gpus
    missing = sorted(set(modules) - set(there))
    if missing or not modules:
        raise HostsError(
            f"{host} has GPUs {min(there)} to {max(there)}"
            + (f", not {', '.join(map(str, missing))}" if missing else "; name one or more")
        )
    return entry
