"""Stand-in for `fmpm` (NVIDIA/Fabric-Manager-Client): the command line of the fabric manager.

Errors are plain text on standard output, and the exit code is the API's return code modulo 256:
that is the real contract, and why callers cannot read errors from standard error.
"""

import json
import re
from typing import Any

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.program import NOT_FOUND, program
from lab.hosts.service_vm import libvirt
from lab.hosts.service_vm.fabric import UNIT, Fabric, Return
from lab.hosts.systemd.units import is_active

_VERSION = "1.0.1"
_MAX_PARTITIONS = 64
_LIST_VERSION, _UNSUPPORTED_VERSION = 16909068, 16781832
_BAD = Return.BADPARAM & 0xFF
_FAILED = {
    "list": "Failed to get partition list.",
    "activate": "Failed to activate partition.",
    "deactivate": "Failed to deactivate partition.",
    "set": "Failed to set activated partitions.",
    "unsupported": "Failed to list unsupported partitions.",
}
_OPERATIONS = {
    "-l": "list",
    "-a": "activate",
    "-d": "deactivate",
    "--set-activated-list": "set",
    "--list-unsupported-partitions": "unsupported",
}


class _InvalidError(Exception):
    """A number of a partition that there cannot be."""


@program(
    "fmpm",
    flags="-l -v --list-unsupported-partitions",
    values="-a -d --set-activated-list --hostname",
    unknown="Invalid argument.",
    unknown_exit=_BAD,
    version=_VERSION,
)
def fmpm(call: Call) -> Answer:
    if call.machine.board.runs_the_driver:
        raise RefusedError("sh: 1: fmpm: not found", NOT_FOUND)
    if call.has("-v"):
        return Answer.out(_VERSION)
    given = [option for option in _OPERATIONS if option in {*call.given.flags, *call.given.values}]
    if len(given) != 1:
        raise RefusedError("fmpm: one of -l, -a, -d and the lists on a simulated host", _BAD)
    operation, said = _OPERATIONS[given[0]], call.value(given[0]) or ""
    try:
        ids = (
            [_number(one) for one in said.split(",") if one] if operation == "set" else [_id(said)]
        )
    except _InvalidError as error:
        return Answer.out(str(error), _BAD)
    if operation == "set" and len(ids) != len(set(ids)):
        return Answer(never=True)  # the real one loops for ever on a repeated number
    fabric = Fabric(call.machine, call.faults)
    running = is_active(call.machine, UNIT) and libvirt.is_running(call.machine, libvirt.SERVICE_VM)
    connected = fabric.connect(call.value("--hostname") or "127.0.0.1", running=running)
    if connected:
        return Answer.out("Failed to connect to Fabric Manager instance.", connected & 0xFF)
    partition = ids[0] if operation in {"activate", "deactivate"} else None
    code = fabric.injected(operation, partition)
    text = ""
    if not code:
        code, text = _perform(fabric, call, operation, ids)
    if code:
        return Answer.out(f"{_FAILED[operation]} fmReturn: {int(code)}", code & 0xFF)
    fabric.afterwards(operation)
    return Answer.out(text)


def _id(text: str) -> int:
    """`std::stoul`: leading digits count; without any the program aborts."""
    match = re.match(r"\s*([+-]?\d+)", text or "0")
    if match is None:
        said = "terminate called after throwing an instance of 'std::invalid_argument'\n"
        raise RefusedError(said + "  what():  stoul", 134)
    number = int(match[1])
    if not 0 <= number < _MAX_PARTITIONS:
        raise _InvalidError("Invalid Partition ID.")
    return number


def _number(text: str) -> int:
    """`atoi` of a part: what is not a number is 0."""
    match = re.match(r"\s*([+-]?\d+)", text)
    number = int(match[1]) if match else 0
    if not 0 <= number < _MAX_PARTITIONS:
        raise _InvalidError(f"Invalid partition Id {number % (1 << 32)} was given.")
    return number


def _perform(fabric: Fabric, call: Call, operation: str, ids: list[int]) -> tuple[Return, str]:
    match operation:
        case "activate":
            return fabric.activate(ids[0]), ""
        case "deactivate":
            return fabric.deactivate(ids[0]), ""
        case "set":
            return fabric.set_activated(ids), ""
    refusal = fabric.ready()
    shown = _partition_list if operation == "list" else _unsupported_list
    return refusal, "" if refusal else _styled(shown(fabric, call))


def _partition_list(fabric: Fabric, call: Call) -> dict[str, Any]:
    board = call.machine.board
    supported = fabric.supported()
    return {
        "version": _LIST_VERSION,
        "numPartitions": len(supported),
        "maxNumPartitions": len(board.partitions),
        "partitionInfo": [
            {
                "partitionId": number,
                "isActive": int(number in fabric.active),
                "numGpus": len(modules),
                "gpuInfo": [
                    # No GPU is visible where the fabric manager runs, so it knows no uuid and no
                    # address: only the module number says which one it is.
                    {
                        "physicalId": module,
                        "uuid": "",
                        "pciBusId": "00000000:00:00.0",
                        "numNvLinksAvailable": fabric.links(module),
                        "maxNumNvLinks": board.links_per_gpu if len(modules) > 1 else 0,
                        "nvlinkLineRateMBps": board.link_rate_mbps,
                    }
                    for module in modules
                ],
            }
            for number, modules in board.partitions.items()
            if number in supported
        ],
    }


def _unsupported_list(fabric: Fabric, call: Call) -> dict[str, Any]:
    supported = fabric.supported()
    partitions = call.machine.board.partitions
    missing = {n: modules for n, modules in partitions.items() if n not in supported}
    return {
        "version": _UNSUPPORTED_VERSION,
        "numPartitions": len(missing),
        "partitionInfo": [
            {"partitionId": number, "numGpus": len(modules), "gpuPhysicalIds": list(modules)}
            for number, modules in missing.items()
        ],
    }


def _styled(value: Any) -> str:
    """The form of the real output: keys sorted, three spaces, ` : `."""
    return json.dumps(value, indent=3, sort_keys=True, separators=(",", " : ")) + "\n"
