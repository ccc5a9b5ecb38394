"""What a node offers of its GPUs: whole, divided by MIG, or several times over. Pure.

Resource names and product labels after NVIDIA/k8s-device-plugin v0.20.0 (README, "Shared Access to GPUs",
MIG).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from lab.hosts import GpuState

GPU: Final = "nvidia.com/gpu"
_MOST: Final = 7
"""MIG instances of one GPU."""
SMALLEST_FIRST = ("1g.", "2g.", "3g.")


@dataclass(frozen=True, slots=True)
class Sharing:
    replicas: Mapping[str, int] = field(default_factory=dict)
    renames: bool = False
    """Whether a resource that is shared is called so."""

    @classmethod
    def of(cls, text: str) -> Sharing:
        """From a configuration of the device plugin."""
        document: Mapping[str, Any] = yaml.safe_load(text) or {}
        sharing = document.get("sharing") or {}
        rules = sharing.get("timeSlicing") or sharing.get("mps") or {}
        replicas = {one["name"]: int(one["replicas"]) for one in rules.get("resources") or ()}
        return cls(replicas, bool(rules.get("renameByDefault")))


def devices(state: GpuState, strategy: str, sharing: Sharing) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for index in range(state.usable):
        slices = (state.mig or {}).get(index)
        if slices is None or strategy == "none":
            found.setdefault(GPU, []).append(str(index))
        for number, profile in enumerate(slices or () if strategy != "none" else ()):
            resource = GPU if strategy == "single" else f"nvidia.com/mig-{profile}"
            found.setdefault(resource, []).append(f"{index}:{number}")
    shared: dict[str, list[str]] = {}
    for resource, ids in found.items():
        times = sharing.replicas.get(resource, 1)
        name = f"{resource}.shared" if sharing.renames and times > 1 else resource
        shared[name] = [f"{i}::{n}" for i in ids for n in range(times)] if times > 1 else ids
    return shared


def product(state: GpuState, strategy: str, sharing: Sharing) -> str:
    """The label `nvidia.com/gpu.product`."""
    name = state.product.replace(" ", "-")
    profiles = {profile for slices in (state.mig or {}).values() for profile in slices}
    if strategy == "single" and len(profiles) == 1:
        name += f"-MIG-{profiles.pop()}"
    if sharing.replicas.get(GPU, 1) > 1 and not sharing.renames:
        name += "-SHARED"
    return name


def layouts(name: str, count: int, custom: str) -> list[dict[int, Sequence[str]]]:
    """What a layout may mean on a node with so many GPUs, the fullest first; none if it is not known.

    Args:
        name: value of the label `nvidia.com/mig.config`.
        count: GPUs of the node.
        custom: `config.yaml` of the ConfigMap that the policy names; empty for the generated one.
    """
    if custom:
        return _custom(name, count, custom)
    every = range(count)
    match name:
        case "all-disabled":
            return [{}]
        case "all-enabled":
            return [dict.fromkeys(every, ())]
        case "all-balanced":
            return []  # Depends on the product; the caller asks `balanced`.
    profile = name.removeprefix("all-").replace(".me", "+me")
    if not name.startswith("all-") or "g." not in profile:
        return []
    return [dict.fromkeys(every, (profile,) * times) for times in range(_MOST, 0, -1)]


def balanced(count: int, sizes: Sequence[str]) -> list[dict[int, Sequence[str]]]:
    """`all-balanced`: two of the smallest, one of the next, one of the third (of profiles by size)."""
    if len(sizes) < len(SMALLEST_FIRST):
        return []
    one = (sizes[0], sizes[0], sizes[1], sizes[2])
    return [dict.fromkeys(range(count), one)]


def _custom(name: str, count: int, text: str) -> list[dict[int, Sequence[str]]]:
    entries = ((yaml.safe_load(text) or {}).get("mig-configs") or {}).get(name)
    if entries is None:
        return []
    layout: dict[int, Sequence[str]] = {}
    for entry in entries:
        chosen = range(count) if entry["devices"] == "all" else entry["devices"]
        amounts = entry.get("mig-devices") or {}
        slices = tuple(profile for profile, n in amounts.items() for _ in range(int(n)))
        if entry.get("mig-enabled"):
            layout |= dict.fromkeys(chosen, slices)
    return [layout]
