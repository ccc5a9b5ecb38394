"""What a real node's containerd needs to give a container its GPUs: device nodes, and a CDI specification.

The nodes are character devices of a number that is for local use: no driver answers. Opening one that was
given fails with "No such device or address", opening one that was not given with "Operation not permitted".
Names after NVIDIA's driver and `nvidia-ctk cdi generate`; instances of MIG are told apart by their
capabilities in `/dev/nvidia-caps`.
"""

import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from lab.files import write_atomic
from lab.gpu_operator.real_nodes import RealNode
from lab.pods.on_processor import CAPABILITIES_PER_GPU, CAPABILITIES_PER_INSTANCE

_MAJOR: Final = 241
_CONTROL: Final = {"/dev/nvidiactl": 255, "/dev/nvidia-uvm": 253, "/dev/nvidia-uvm-tools": 254}
_CAPABILITIES: Final = 256
"""Numbers from here on belong to instances of MIG."""
_SPECIFICATION: Final = "/run/cdi/gpu-operator-stand-in.json"
_MANAGEMENT: Final = "/run/cdi/management.nvidia.com-gpu.json"
"""Of all GPUs, by the name that the toolkit's runtime asks for where a container names them itself."""
KIND: Final = "nvidia.com/gpu"
"""Of every device, also of instances of MIG: a class of CDI has no dots."""


def names(identifiers: Iterable[str]) -> list[str]:
    """What CDI calls the devices with these ids: a shared one, `3::1`, is the same as the whole, `3`."""
    return sorted({one.partition("::")[0] for one in identifiers})


def nodes_of(name: str) -> dict[str, int]:
    """Minor numbers of the nodes of one device, by path: `3`, or `3:0` of MIG."""
    gpu, _, rest = name.partition(":")
    found = {f"/dev/nvidia{gpu}": int(gpu)}
    if rest:
        first = CAPABILITIES_PER_GPU * int(gpu) + CAPABILITIES_PER_INSTANCE * int(rest)
        for number in range(first, first + CAPABILITIES_PER_INSTANCE):
            found[f"/dev/nvidia-caps/nvidia-cap{number}"] = _CAPABILITIES + number
    return found


def specification(devices: Iterable[str]) -> dict[str, Any]:
    """The CDI specification of devices with these names."""
    return _specified(KIND, {one: nodes_of(one) for one in devices})


def management(devices: Iterable[str]) -> dict[str, Any]:
    """That of all of them as one, for containers that manage GPUs."""
    every = {path: number for one in devices for path, number in nodes_of(one).items()}
    return _specified(f"management.{KIND}", {"all": every})


def _specified(kind: str, devices: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": _nodes(nodes)}}
            for name, nodes in devices.items()
        ],
        "containerEdits": {
            "deviceNodes": _nodes(_CONTROL),
            # What the plugin gives has been chosen: the runtime of NVIDIA is to add nothing.
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        },
    }


def provide(node: RealNode, resources: Mapping[str, Sequence[str]]) -> None:
    """Have nodes of these devices, ids by resource, and a specification of exactly them.

    Again: changes nothing. Nodes of devices that are no more stay: nobody is given them.
    """
    devices = names(one for identifiers in resources.values() for one in identifiers)
    for one in devices:
        _make(node, {**_CONTROL, **nodes_of(one)})
    for path, stated in ((_SPECIFICATION, specification), (_MANAGEMENT, management)):
        place = node.path(path)
        if not devices:
            place.unlink(missing_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(place, (json.dumps(stated(devices), indent=2) + "\n").encode())


def _nodes(numbers: Mapping[str, int]) -> list[dict[str, str]]:
    return [{"path": path} for path in numbers]


def _make(node: RealNode, numbers: Mapping[str, int]) -> None:
    for path, minor in numbers.items():
        place = node.path(path)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, minor))
            place.chmod(0o666)
