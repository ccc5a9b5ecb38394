"""Stand-in for `fmpm` (NVIDIA/Fabric-Manager-Client): the command line of the fabric manager.

Errors are plain text on standard output, and the exit code is the API's return code modulo 256:
that is the real contract, and why callers cannot read errors from standard error.
"""

from __future__ import annotations

import json
import re
from typing import Any

from lab.hosts.call import Answer, Call
from lab.hosts.service_vm.fabric import UNIT, Fabric, Return
from lab.hosts.service_vm.libvirt import SERVICE_VM
from lab.hosts.service_vm.virsh import is_running
from lab.hosts.systemd.units import is_active

VERSION = "1.0.1"
_MAX_PARTITIONS = 64
_LIST_VERSION = 16909068
_UNSUPPORTED_VERSION = 16781832
_FAILED_VERSION = 16787980

HELP = """\
-l : List partitions
-a <Partition ID> : Activate partition
-d <Partition ID> : Deactivate partition
--hostname : hostname or IP address (TCP socket) of Fabric Manager (default 127.0.0.1)
--unix-domain-socket : UNIX domain socket path for Fabric Manager connection
--get-nvlink-failed-devices : Query all NVLink failed devices
--list-unsupported-partitions : Query all unsupported fabric partitions
--set-activated-list <Partition IDs> : Set a list of currently activated fabric partitions.
     Comma separated, no space!
-v : Show version
(stand-in of a simulated host)
"""

_FAILED = {
    "list": "Failed to get partition list.",
    "activate": "Failed to activate partition.",
    "deactivate": "Failed to deactivate partition.",
    "set": "Failed to set activated partitions.",
    "failed-devices": "Failed to NVLink failed devices.",
    "unsupported": "Failed to list unsupported partitions.",
}


class _BadArgumentsError(Exception):
    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


def run(call: Call) -> Answer:
    if call.machine.board.runs_the_driver:
        return Answer.error("sh: 1: fmpm: not found", 127)
    if call.arguments in {(), ("-h",)}:
        return Answer.out(HELP)
    try:
        operation, ids, host = _parse(call.arguments)
    except _BadArgumentsError as bad:
        return bad.answer
    if operation == "version":
        return Answer.out(VERSION)
    if operation == "set" and len(ids) != len(set(ids)):
        return Answer(never=True)  # the real one loops for ever on a repeated number
    fabric = Fabric(call.machine, call.faults)
    running = is_active(call.machine, UNIT) and is_running(call.machine, SERVICE_VM)
    connected = fabric.connect(host, running=running)
    if connected:
        return Answer.out("Failed to connect to Fabric Manager instance.", connected & 0xFF)
    code, text = _operate(fabric, call, operation, ids)
    if code:
        return Answer.out(f"{_FAILED[operation]} fmReturn: {int(code)}", code & 0xFF)
    return Answer.out(text)


def _parse(arguments: tuple[str, ...]) -> tuple[str, list[int], str]:
    """Operation, partition numbers and host. Like the real one, the last operation wins."""
    operation, ids, host = "none", list[int](), "127.0.0.1"
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if flag in {"-a", "-d"}:
            if not rest:
                code = 1 if flag == "-a" else Return.BADPARAM & 0xFF
                text = f"Error: {flag} option requires partition ID."
                raise _BadArgumentsError(Answer.error(text, code))
            operation, ids = ("activate" if flag == "-a" else "deactivate"), [_id(rest.pop(0))]
        elif flag == "--set-activated-list":
            operation, ids = "set", _ids(_value(rest, flag, "list of partition IDs"))
        elif flag == "--hostname":
            host = _value(rest, flag, "user specified IP or hostname")
        elif flag == "--unix-domain-socket":
            # The real one overwrites the path with the host name: it always goes over TCP.
            _value(rest, flag, "user specified socket value")
        elif flag in _QUERIES:
            operation = _QUERIES[flag]
            if operation == "version":
                break
        else:
            raise _BadArgumentsError(Answer.error("Invalid argument.\n\n", Return.BADPARAM & 0xFF))
    return operation, ids, host


_CHANGES = {"activate", "deactivate"}
_QUERIES = {
    "-l": "list",
    "-v": "version",
    "--get-nvlink-failed-devices": "failed-devices",
    "--list-unsupported-partitions": "unsupported",
}


def _value(rest: list[str], flag: str, what: str) -> str:
    if not rest:
        raise _BadArgumentsError(Answer.error(f"Error: {flag} option requires {what}.", 1))
    return rest.pop(0)


def _id(text: str) -> int:
    """`std::stoul`: leading digits count; without any the program aborts."""
    match = re.match(r"\s*([+-]?\d+)", text)
    if match is None:
        text = "terminate called after throwing an instance of 'std::invalid_argument'\n"
        raise _BadArgumentsError(Answer.error(text + "  what():  stoul", 134))
    number = int(match.group(1))
    if not 0 <= number < _MAX_PARTITIONS:
        raise _BadArgumentsError(Answer.out("Invalid Partition ID.", Return.BADPARAM & 0xFF))
    return number


def _ids(text: str) -> list[int]:
    """`atoi` of each part: what is not a number is 0."""
    ids: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.match(r"\s*([+-]?\d+)", part)
        number = int(match.group(1)) if match else 0
        if not 0 <= number < _MAX_PARTITIONS:
            shown = number % (1 << 32)
            raise _BadArgumentsError(
                Answer.out(f"Invalid partition Id {shown} was given.", Return.BADPARAM & 0xFF)
            )
        ids.append(number)
    return ids


def _operate(fabric: Fabric, call: Call, operation: str, ids: list[int]) -> tuple[Return, str]:
    if operation == "none":
        return Return.SUCCESS, ""
    injected = fabric.injected(operation, ids[0] if operation in _CHANGES else None)
    if injected:
        return injected, ""
    code, text = _perform(fabric, call, operation, ids)
    if not code:
        fabric.afterwards(operation)
    return code, text


def _perform(fabric: Fabric, call: Call, operation: str, ids: list[int]) -> tuple[Return, str]:
    if operation == "activate":
        return fabric.activate(ids[0]), ""
    if operation == "deactivate":
        return fabric.deactivate(ids[0]), ""
    if operation == "set":
        return fabric.set_activated(ids), ""
    refusal = fabric.ready()
    if refusal:
        return refusal, ""
    if operation == "list":
        return Return.SUCCESS, _styled(_partition_list(fabric, call))
    if operation == "unsupported":
        return Return.SUCCESS, _styled(_unsupported_list(fabric, call))
    failed = {"version": _FAILED_VERSION, "numGpus": 0, "numSwitches": 0}
    return Return.SUCCESS, _styled({**failed, "gpuInfo": [], "switchInfo": []})


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
