"""What a real node's containerd needs to give a container its GPUs: device nodes, and a CDI specification.

The nodes are character devices of a number that is for local use: no driver answers. Opening one that was
given fails with "No such device or address", opening one that was not given with "Operation not permitted".
Names after NVIDIA's driver and `nvidia-ctk cdi generate`; instances of MIG are told apart by their
capabilities in `/dev/nvidia-caps`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from lab.gpu_operator.real_nodes import RealNode

_MAJOR: Final = 241
_CONTROL: Final = {"/dev/nvidiactl": 255, "/dev/nvidia-uvm": 253, "/dev/nvidia-uvm-tools": 254}
_CAPABILITIES: Final = 256
"""Numbers from here on belong to instances of MIG: sixteen of each GPU."""
_PER_GPU: Final = 16
_FOLDER: Final = "/run/cdi"
_PREFIX: Final = "gpu-operator-stand-in-"


def devices_of(identifier: str) -> dict[str, int]:
    """Minor numbers of the nodes of one device, by path: `3`, `3:0` of MIG, `3::1` of a shared one."""
    gpu, _, rest = identifier.partition("::")[0].partition(":")
    found = {f"/dev/nvidia{gpu}": int(gpu)}
    if rest:
        number = _CAPABILITIES + _PER_GPU * int(gpu) + 2 * int(rest)
        for capability in (number, number + 1):
            found[f"/dev/nvidia-caps/nvidia-cap{capability - _CAPABILITIES}"] = capability
    return found


def specification(kind: str, identifiers: Sequence[str]) -> dict[str, Any]:
    """The CDI specification of one resource."""
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {"name": one, "containerEdits": {"deviceNodes": _nodes(devices_of(one))}}
            for one in identifiers
        ],
        "containerEdits": {
            "deviceNodes": _nodes(_CONTROL),
            # What the plugin gives has been chosen: the runtime of NVIDIA is to add nothing.
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        },
    }


def provide(node: RealNode, resources: Mapping[str, Sequence[str]]) -> None:
    """Have nodes and specifications of exactly these devices, ids by resource; again: changes nothing."""
    wanted = {_file(resource): text for resource, text in _texts(resources)}
    for identifiers in resources.values():
        for one in identifiers:
            _make(node, {**_CONTROL, **devices_of(one)})
    folder = node.path(_FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            temporary = folder / f".{name}"
            temporary.write_text(text)
            temporary.replace(folder / name)
    for old in folder.glob(f"{_PREFIX}*"):
        if old.name not in wanted:
            old.unlink()


def _texts(resources: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    for resource, identifiers in resources.items():
        if identifiers:
            kind = resource.removesuffix(".shared")
            yield resource, json.dumps(specification(kind, identifiers), indent=2) + "\n"


def _file(resource: str) -> str:
    return f"{_PREFIX}{resource.rpartition('/')[2]}.json"


def _nodes(numbers: Mapping[str, int]) -> list[dict[str, str]]:
    return [{"path": path} for path in numbers]


def _make(node: RealNode, numbers: Mapping[str, int]) -> None:
    for path, minor in numbers.items():
        place = node.path(path)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, minor))
            place.chmod(0o666)
