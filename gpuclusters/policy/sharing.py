"""The rule about tenants that share one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuclusters.policy.rule import Parameters
from gpuclusters.policy.stack import Stack, Violation

_TIME, _MPS = "by time", "by MPS"
_KEYS = {"timeSlicing": _TIME, "time_slicing": _TIME, "time-slicing": _TIME, "mps": _MPS}
_WHY = {
    _TIME: "no memory limit and no fault isolation between them",
    _MPS: "one server runs the kernels of all of them, and a fault of one ends the others",
}


def shared_gpus(stack: Stack, _parameters: Parameters) -> Iterator[Violation]:
    """GPUs that are handed out more than once, in a cluster with more than one tenant."""
    if stack.tenants < 2:
        return
    for subject in stack.there:
        for how in sorted(_ways(subject.props)):
            yield Violation(
                subject, f"GPUs are shared {how} among {stack.tenants} tenants: {_WHY[how]}"
            )


def _ways(value: Any) -> set[str]:
    """How GPUs are shared according to a value, or to a text within it that is the plugin's configuration."""
    if isinstance(value, Mapping):
        here = {
            how for key, how in _KEYS.items() if isinstance(value.get(key), Mapping) and value[key]
        }
        return here.union(*map(_ways, value.values()))
    if isinstance(value, list):
        return set().union(*map(_ways, value))
    if not isinstance(value, str) or "replicas:" not in value:
        return set()
    return {how for key, how in _KEYS.items() if f"{key}:" in value}
