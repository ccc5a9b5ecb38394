"""Stand-in for `nvidia-smi` on a machine that runs NVIDIA's driver itself.

Output and exit status after nvidia-smi(1): 9 without a loaded driver, 18 when library and module differ, 6
without a GPU that the driver serves; queries in CSV, `-L`, `-mig`, `mig -cgi|-lgi|-dci|-dgi`, `-q -x`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.hosts.call import Answer, Call
from lab.hosts.hardware import gpus, mig
from lab.hosts.nvidia import driver, gpu_uuids
from lab.hosts.nvidia.driver_faults import GpuInUse

NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
NO_DRIVER_EXIT = 9
_MISMATCH, _NO_DEVICES, _USAGE = 18, 6, 2


@dataclass(frozen=True, slots=True)
class _Gpu:
    index: int
    module: int
    address: str
    uuid: str
    live: gpus.Gpu


def run(call: Call) -> Answer:
    version = driver.userland(call.machine)
    if version is None:
        return Answer.error(f"sh: 1: {call.name}: not found", 127)
    runs = driver.loaded(call.machine)
    if runs is None:
        return Answer.out(NO_DRIVER, NO_DRIVER_EXIT)
    if runs.version != version:
        return Answer.out(
            "Failed to initialize NVML: Driver/library version mismatch\n"
            f"NVML library version: {version.rpartition('.')[0]}",
            _MISMATCH,
        )
    if not driver.serves(call.machine, runs):
        return Answer.out("No devices were found", _NO_DEVICES)
    found = _gpus(call)
    words = list(call.arguments)
    if words[:1] == ["mig"]:
        return _mig(call, found, words[1:])
    options = _options(words)
    if isinstance(options, Answer):
        return options
    chosen = [g for g in found if options.get("-i") in (None, str(g.index), g.uuid)]
    for option, act in _ACTS.items():
        if option in options:
            return act(call, chosen, options)
    return Answer.out(_table(call, chosen, version)) if not words else _unknown(words[0])


def _options(words: list[str]) -> dict[str, str] | Answer:
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, separator, value = word.partition("=")
        if name in {"--query-gpu", "--query-compute-apps", "--format"} and separator:
            found[name] = value
        elif name in {"-i", "-mig", "--id"} and rest:
            found["-i" if name == "--id" else name] = rest.pop(0)
        elif word in {"-L", "--list-gpus", "-q", "-x"}:
            found["-L" if word == "--list-gpus" else word] = ""
        else:
            return _unknown(word)
    return found


def _unknown(word: str) -> Answer:
    return Answer.out(f"Invalid combination of input arguments: {word}", _USAGE)


def _gpus(call: Call) -> list[_Gpu]:
    known = gpus.read(call.machine.folder)
    board = call.machine.board
    uuids = gpu_uuids.on_the_bus(call.machine, call.faults)
    return [
        _Gpu(
            index,
            module,
            f"00000000:{device.address[5:].upper()}",
            uuids[module],
            known.get(module, gpus.Gpu()),
        )
        for index, (module, device) in enumerate(sorted(board.gpus.items()))
        if module in uuids
    ]


def _fields(call: Call, gpu: _Gpu) -> Mapping[str, str]:
    board, runs = call.machine.board, driver.loaded(call.machine)
    has_mig = bool(mig.profiles(board))
    mode = gpu.live.knobs["mig"].capitalize() if has_mig else "[N/A]"
    fabric = "Completed" if driver.fabric_is_up(call.machine) else "In Progress"
    return {
        "index": str(gpu.index),
        "count": str(len(board.gpus)),
        "name": board.gpu_name,
        "gpu_name": board.gpu_name,
        "uuid": gpu.uuid,
        "gpu_uuid": gpu.uuid,
        "pci.bus_id": gpu.address,
        "gpu_bus_id": gpu.address,
        "driver_version": runs.version if runs else "",
        "memory.total": f"{board.gpu_memory_mib} MiB",
        "memory.used": "0 MiB",
        "utilization.gpu": "0 %",
        "temperature.gpu": "31",
        "mig.mode.current": mode,
        "mig.mode.pending": mode,
        "fabric.state": fabric if board.has_switches else "[N/A]",
        "fabric.status": "Success" if fabric == "Completed" else "N/A",
    }


def _query(call: Call, chosen: list[_Gpu], options: Mapping[str, str]) -> Answer:
    names = [name.strip() for name in options["--query-gpu"].split(",")]
    rows: list[list[str]] = []
    for gpu in chosen:
        fields = _fields(call, gpu)
        unknown = [name for name in names if name not in fields]
        if unknown:
            return Answer.out(f'Field "{unknown[0]}" is not a valid field to query.', _USAGE)
        rows.append([fields[name] for name in names])
    return _csv(names, rows, options)


def _applications(call: Call, chosen: list[_Gpu], options: Mapping[str, str]) -> Answer:
    names = [name.strip() for name in options["--query-compute-apps"].split(",")]
    rows: list[list[str]] = []
    for fault in call.faults.all(GpuInUse):
        fields = {
            "pid": str(fault.pid),
            "process_name": fault.name,
            "name": fault.name,
            "gpu_uuid": chosen[0].uuid if chosen else "",
            "used_memory": "512 MiB",
        }
        rows.append([fields.get(name, "[N/A]") for name in names])
    return _csv(names, rows, options)


def _csv(names: list[str], rows: list[list[str]], options: Mapping[str, str]) -> Answer:
    words = options.get("--format", "").split(",")
    if words[0] != "csv":
        return Answer.out("Option --format= is required with a query, such as csv", _USAGE)
    if "nounits" in words:
        rows = [[value.removesuffix(" MiB").removesuffix(" %") for value in row] for row in rows]
    lines = [] if "noheader" in words else [", ".join(names)]
    return Answer.out("\n".join([*lines, *(", ".join(row) for row in rows)]))


def _list(call: Call, chosen: list[_Gpu], _: Mapping[str, str]) -> Answer:
    lines: list[str] = []
    for gpu in chosen:
        lines.append(f"GPU {gpu.index}: {call.machine.board.gpu_name} (UUID: {gpu.uuid})")
        for number, profile in enumerate(gpu.live.mig_instances):
            name = uuid.uuid5(uuid.NAMESPACE_DNS, f"{gpu.uuid}/{number}/{profile}")
            lines.append(f"  MIG {profile:<11}     Device {number:>2}: (UUID: MIG-{name})")
    return Answer.out("\n".join(lines))


def _mode(call: Call, chosen: list[_Gpu], options: Mapping[str, str]) -> Answer:
    if not call.is_root:
        return Answer.out("Unable to set MIG mode: Insufficient Permissions", 4)
    lines: list[str] = []
    for gpu in chosen:
        if not mig.profiles(call.machine.board):
            return Answer.out(f"Unable to enable MIG Mode for GPU {gpu.address}: Not Supported", 3)
        if call.faults.first(GpuInUse):
            return Answer.out(f"GPU {gpu.address} is currently in use by another process", 19)
        on = options["-mig"] == "1"
        with gpus.change(call.machine.folder, gpu.module) as live:
            live.knobs = {**live.knobs, "mig": "enabled" if on else "disabled"}
            live.mig_instances = live.mig_instances if on else []
        lines.append(f"{'Enabled' if on else 'Disabled'} MIG Mode for GPU {gpu.address}")
    return Answer.out("\n".join([*lines, "All done."]))


def _xml(call: Call, chosen: list[_Gpu], _: Mapping[str, str]) -> Answer:
    if "-x" not in call.arguments:
        return Answer.out("-q is there with -x alone on a simulated host", _USAGE)
    blocks = ""
    for gpu in chosen:
        fields = _fields(call, gpu)
        blocks += (
            f'\t<gpu id="{gpu.address}">\n\t\t<product_name>{fields["name"]}</product_name>\n'
            f"\t\t<uuid>{gpu.uuid}</uuid>\n\t\t<mig_mode>\n\t\t\t<current_mig>"
            f"{fields['mig.mode.current']}</current_mig>\n\t\t</mig_mode>\n"
            f"\t\t<fabric>\n\t\t\t<state>{fields['fabric.state']}</state>\n\t\t</fabric>\n"
            f"\t\t<fb_memory_usage>\n\t\t\t<total>{fields['memory.total']}</total>\n"
            "\t\t</fb_memory_usage>\n\t</gpu>\n"
        )
    version = driver.userland(call.machine)
    return Answer.out(
        '<?xml version="1.0" ?>\n<nvidia_smi_log>\n'
        f"\t<driver_version>{version}</driver_version>\n"
        f"\t<attached_gpus>{len(chosen)}</attached_gpus>\n{blocks}</nvidia_smi_log>"
    )


_ACTS: Mapping[str, Callable[[Call, list[_Gpu], Mapping[str, str]], Answer]] = {
    "--query-gpu": _query,
    "--query-compute-apps": _applications,
    "-L": _list,
    "-mig": _mode,
    "-q": _xml,
}


def _mig(call: Call, found: list[_Gpu], words: list[str]) -> Answer:
    """`nvidia-smi mig [-i N] -cgi PROFILE,… [-C] | -lgi | -dci | -dgi`."""
    rest, index, wanted = list(words), None, ""
    verbs: set[str] = set()
    while rest:
        word = rest.pop(0)
        if word == "-i" and rest:
            index = rest.pop(0)
        elif word == "-cgi" and rest:
            wanted = rest.pop(0)
            verbs.add(word)
        elif word in {"-C", "-lgi", "-dci", "-dgi"}:
            verbs.add(word)
        else:
            return _unknown(word)
    chosen = [gpu for gpu in found if index in (None, str(gpu.index))]
    divided = [gpu for gpu in chosen if gpu.live.knobs["mig"] == "enabled"]
    if not divided:
        return Answer.out("No MIG-enabled devices found.", _NO_DEVICES)
    if "-lgi" in verbs:
        known = mig.profiles(call.machine.board)
        rows = [
            f"|   {g.index}  MIG {name:<12} {known[name].number:>5} {number:>8} |"
            for g in divided
            for number, name in enumerate(g.live.mig_instances)
        ]
        return Answer.out("\n".join(rows) or "No GPU instances found: Not Found")
    if not call.is_root:
        return Answer.out("Insufficient Permissions", 4)
    return _divide(call, divided, wanted) if wanted else _destroy(call, divided, verbs)


def _divide(call: Call, divided: list[_Gpu], wanted: str) -> Answer:
    known = mig.profiles(call.machine.board)
    by_number = {str(profile.number): name for name, profile in known.items()}
    names = [by_number.get(word, word) for word in wanted.split(",")]
    lines: list[str] = []
    for gpu in divided:
        problem = mig.problem(call.machine.board, [*gpu.live.mig_instances, *names])
        if problem is not None:
            return Answer.out(
                f"Failed to create GPU instances on GPU {gpu.index}: {problem}", _USAGE
            )
        with gpus.change(call.machine.folder, gpu.module) as live:
            live.mig_instances = [*live.mig_instances, *names]
        lines += [f"Successfully created GPU instance on GPU {gpu.index}: {name}" for name in names]
    return Answer.out("\n".join(lines))


def _destroy(call: Call, divided: list[_Gpu], verbs: set[str]) -> Answer:
    # Compute instances are not told from the GPU instances that hold them.
    if "-dgi" in verbs:
        for gpu in divided:
            with gpus.change(call.machine.folder, gpu.module) as live:
                live.mig_instances = []
    return Answer.out("Successfully destroyed instances")


def _table(call: Call, chosen: list[_Gpu], version: str) -> str:
    lines = [f"| NVIDIA-SMI {version}   Driver Version: {version}   (simulated) |"]
    lines += [f"| {g.index:>3}  {call.machine.board.gpu_name:<28} {g.address} |" for g in chosen]
    return "\n".join(lines)
