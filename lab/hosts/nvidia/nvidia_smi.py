"""Stand-in for `nvidia-smi`: on a machine that runs NVIDIA's driver itself, and on one without it.

Output and exit status after nvidia-smi(1): 9 without a loaded driver, 18 when library and module differ, 6
without a GPU that the driver serves; queries in CSV, and `-L`.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import GpuInUse
from lab.hosts.hardware import gpus, mig
from lab.hosts.nvidia import driver
from lab.hosts.program import NOT_FOUND, program, typed

_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
_OPTIONS = "--query-gpu --query-compute-apps --format -i"
_UNKNOWN = "Invalid combination of input arguments: {option}"
_NO_DRIVER_EXIT, _MISMATCH, _NO_DEVICES, _USAGE = 9, 18, 6, 2


@dataclass(frozen=True, slots=True)
class _Gpu:
    index: int
    address: str
    uuid: str
    live: gpus.Gpu


@program("nvidia-smi", unknown=None)
def smi(call: Call) -> Answer:
    machine = call.machine
    version, runs = driver.userland(machine), driver.loaded(machine)
    if machine.board.runs_the_driver and version is None:
        raise RefusedError(f"sh: 1: {call.name}: not found", NOT_FOUND)
    if runs is None:
        return Answer.out(_NO_DRIVER, _NO_DRIVER_EXIT)
    if runs.version != version:
        return Answer.out(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            f"NVML library version: {(version or '').rpartition('.')[0]}",
            _MISMATCH,
        )
    if not driver.serves(machine, runs):
        return Answer.out("No devices were found", _NO_DEVICES)
    call = typed(call, "-L", _OPTIONS, unknown=_UNKNOWN, exit_code=_USAGE)
    chosen = [g for g in _gpus(call) if call.value("-i") in (None, str(g.index), g.uuid)]
    if call.has("-L"):
        return _list(machine.board.gpu_name, chosen)
    if call.value("--query-gpu"):
        return _csv(call, "--query-gpu", [_fields(call, gpu, runs.version) for gpu in chosen])
    if call.value("--query-compute-apps"):
        names = [(str(fault.pid), fault.name) for fault in call.faults.all(GpuInUse)]
        rows = [{"pid": pid, "process_name": name} for pid, name in names]
        return _csv(call, "--query-compute-apps", rows)
    return Answer.out("on a simulated host: -L, --query-gpu or --query-compute-apps", _USAGE)


def _gpus(call: Call) -> list[_Gpu]:
    known = gpus.read(call.machine.folder)
    uuids = driver.on_the_bus(call.machine, call.faults)
    return [
        _Gpu(
            index,
            f"00000000:{device.address[5:].upper()}",
            uuids[module],
            known.get(module, gpus.Gpu()),
        )
        for index, (module, device) in enumerate(sorted(call.machine.board.gpus.items()))
        if module in uuids
    ]


def _fields(call: Call, gpu: _Gpu, version: str) -> Mapping[str, str]:
    board = call.machine.board
    return {
        "index": str(gpu.index),
        "name": board.gpu_name,
        "uuid": gpu.uuid,
        "pci.bus_id": gpu.address,
        "driver_version": version,
        "memory.total": f"{board.gpu_memory_mib} MiB",
        "mig.mode.current": (
            gpu.live.knobs["mig"].capitalize() if mig.profiles(board) else "[N/A]"
        ),
    }


def _csv(call: Call, option: str, rows: Sequence[Mapping[str, str]]) -> Answer:
    names = [name.strip() for name in (call.value(option) or "").split(",")]
    form = (call.value("--format") or "").split(",")
    if form[0] != "csv":
        return Answer.out("Option --format= is required with a query, such as csv", _USAGE)
    unknown = [name for row in rows for name in names if name not in row]
    if unknown:
        return Answer.out(f'Field "{unknown[0]}" is not a valid field to query.', _USAGE)
    lines = [] if "noheader" in form else [", ".join(names)]
    return Answer.out("\n".join([*lines, *(", ".join(row[n] for n in names) for row in rows)]))


def _list(name: str, chosen: list[_Gpu]) -> Answer:
    lines: list[str] = []
    for gpu in chosen:
        lines.append(f"GPU {gpu.index}: {name} (UUID: {gpu.uuid})")
        for number, profile in enumerate(gpu.live.mig_instances):
            own = uuid.uuid5(uuid.NAMESPACE_DNS, f"{gpu.uuid}/{number}/{profile}")
            lines.append(f"  MIG {profile:<11}     Device {number:>2}: (UUID: MIG-{own})")
    return Answer.out("\n".join(lines))
