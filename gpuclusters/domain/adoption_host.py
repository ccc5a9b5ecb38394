"""How what is there on a host differs from what is declared: files, units, CDI specs, boots, VMs.

What a run of ours began and did not end is no difference: the next run goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.domain import cdi, service_vm_state
from gpuclusters.domain.adoption import value
from gpuclusters.domain.cdi import CdiSpecInputs
from gpuclusters.domain.host_file import HostFileSpec, sha256_of
from gpuclusters.domain.ports import LiveFile, PciFunction
from gpuclusters.domain.service_vm_state import LiveVm, WantedVm


def file(spec: HostFileSpec, live: LiveFile | None) -> Iterator[str]:
    """Content, mode and owner. The content itself is not told: it may be secret."""
    if live is None:
        return
    if live.content != spec.content.encode():
        there, here = live.content.splitlines(), spec.content.encode().splitlines()
        pairs = zip(there, here, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(there), len(here)))
        yield (
            f"{spec.path} has other content from line {same + 1} on ({len(live.content)} bytes instead of "
            f"{len(spec.content.encode())}, sha256 {live.sha256[:12]})"
        )
    mode = spec.mode.rjust(4, "0")
    if live.mode.rjust(4, "0") != mode:
        yield f"{spec.path} has mode {live.mode} instead of {mode}"
    if live.owner != spec.owner:
        yield f"{spec.path} belongs to {live.owner} instead of {spec.owner}"


def cdi_file(
    spec: CdiSpecInputs, live: LiveFile | None, found: Mapping[str, PciFunction]
) -> Iterator[str]:
    """Kind, devices, and what each device and all together bring into a container."""
    if live is None:
        return
    there = cdi.parse(live.content)
    if there is None:
        yield f"{spec.path} is neither JSON nor YAML"
        return
    here = json.loads(cdi.render(spec, found))
    yield from value("kind", there.get("kind"), here["kind"])
    yield from value(
        "containerEdits", _edits(there.get("containerEdits")), _edits(here["containerEdits"])
    )
    theirs, ours = _devices(there), _devices(here)
    for name in sorted(theirs.keys() | ours.keys(), key=lambda n: (len(n), n)):
        if name not in ours:
            yield f"it has a device {name}, which is not declared"
        elif name not in theirs:
            yield f"it has no device {name}"
        else:
            yield from value(f"device {name}", theirs[name], ours[name])


def _devices(document: Mapping[str, Any]) -> dict[str, Any]:
    listed = document.get("devices")
    return {
        str(device.get("name")): _edits(device.get("containerEdits"))
        for device in (listed if isinstance(listed, list) else [])
        if isinstance(device, Mapping)
    }


def _edits(stated: Any) -> dict[str, Any]:
    """Edits of a container in one form: nodes by path, with what a runtime takes where nothing is said."""
    if not isinstance(stated, Mapping):
        return {}
    edits = {key: value for key, value in stated.items() if value and key != "deviceNodes"}
    nodes = stated.get("deviceNodes")
    for node in nodes if isinstance(nodes, list) else []:
        if isinstance(node, Mapping):
            rest = {
                k: v
                for k, v in node.items()
                if k not in ("path", "type", "hostPath", "permissions")
            }
            access = "".join(sorted(str(node.get("permissions", "rwm")).replace("m", "")))
            edits[f"{node.get('path')} ({access})"] = rest or True
    return edits


def unit(
    path: str, content: str, live: LiveFile | None, differences: Sequence[str]
) -> Iterator[str]:
    """A unit's file, and what systemd says of it."""
    if live is None:
        return
    if live.sha256 != sha256_of(content.encode()):
        yield f"{path} has other content (sha256 {live.sha256[:12]})"
    yield from differences


def service_vm(want: WantedVm, live: LiveVm) -> Iterator[str]:
    """The domain, its network and its disk. Our mark and our UUID are no difference: it gets them."""
    if live.domain is None:
        return
    # What is missing altogether is made as ever.
    plan = service_vm_state.compare(want, live)
    yield from (
        f"domain: {words}" for words in plan.domain if not words.startswith(("uuid ", "our mark"))
    )
    if live.network is not None:
        yield from (f"network: {words}" for words in plan.network)
    if plan.disk and live.backing is not None:
        yield plan.disk
