"""Judges what scripts/matmul.py printed: right, repeatable, fast enough, on the GPU meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.domain import gpu_products
from gpuclusters.proof.checks import Check, Level, Outcome
from gpuclusters.proof.model import ProofNode

FORMAT = 1
MOST_ERROR = 2e-3
"""Relative error of a product in half precision: rounding its result alone gives about 3e-4."""
SIZE = 8192
SECONDS = 5
_MIG = re.compile(r"MIG (\d+)g\.")
_MAKE = re.compile(r"^(NVIDIA|Tesla) ")
"""Drivers of different ages write it or not."""
_WHAT = "multiplies matrices"


def parse(log: str) -> Mapping[str, Any] | None:
    """The result line in a log; None if there is none."""
    for line in reversed(log.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, Mapping) and found.get("proof") == "matmul":
            return found
    return None


def judge(node: ProofNode, log: str, *, floor_percent: int, simulated: bool) -> Sequence[Check]:
    """A check for each GPU, and one for their number."""
    found = parse(log)
    if found is None or found.get("format") != FORMAT:
        said = "the job gave no result line; its log ends: " + (_end(log) or "(empty)")
        return [_check(node.name, Outcome.FAILED, said)]
    devices = list(found.get("devices") or ())
    if found.get("cpu") is not False and not simulated:
        return [_check(node.name, Outcome.FAILED, "it ran on the processor, not on a GPU")]
    return [_number(node, devices), *_devices(node, devices, None if simulated else floor_percent)]


def floor(node: ProofNode, name: str, floor_percent: int) -> float | None:
    """Least TFLOPS of a device of this name; None if none is known or it is shared.

    The floor is a share of the data sheet's dense half precision rate; a MIG instance has as much of it
    as it has compute slices.
    """
    if node.product is None or node.shared:
        return None
    product = gpu_products.product(node.product)
    cut = _MIG.search(name)
    share = int(cut[1]) / _slices(product.mig) if cut and product.mig else 1.0
    return product.bf16_tflops * share * floor_percent / 100


def is_product(product: str, name: str) -> bool:
    """Whether a device that calls itself so is of a product; MIG instances add their profile to it."""
    return _MAKE.sub("", gpu_products.product(product).name) in _MAKE.sub("", name)


def _slices(family: str) -> int:
    table = gpu_products.table()
    return table.kinds[table.families[family].kind].slices[0]


def _number(node: ProofNode, devices: Sequence[Mapping[str, Any]]) -> Check:
    wanted = sum(node.requests.values())
    said = f"{len(devices)} of {wanted} devices in the pod"
    outcome = Outcome.PASSED if len(devices) == wanted else Outcome.FAILED
    return Check(Level.L1, node.name, "gives a pod the devices that it asks for", outcome, said)


def _devices(
    node: ProofNode, devices: Sequence[Mapping[str, Any]], floor_percent: int | None
) -> Iterator[Check]:
    for position, device in enumerate(devices):
        subject = f"{node.name} {device.get('uuid', position)}"
        if "failed" in device:
            yield _check(subject, Outcome.FAILED, str(device["failed"]))
            continue
        name, tflops = str(device["name"]), float(device["tflops"])
        error, differ = float(device["error"]), int(device["differ"])
        least = None if floor_percent is None else floor(node, name, floor_percent)
        problems = []
        if not error <= MOST_ERROR:  # not a number is wrong too
            problems.append(f"wrong by more than {MOST_ERROR:g}")
        if differ:
            problems.append("the same product came out differently twice")
        if least is not None and tflops < least:
            problems.append("too slow")
        real = floor_percent is not None
        if real and node.product is not None and not is_product(node.product, name):
            problems.append(f"the configuration says {node.product}")
        known = f"floor {least:.1f}" if least is not None else "no floor is known"
        said = f"{name}: {tflops:.4g} TFLOPS ({known}), error {error:.1e}, {differ} elements differ"
        yield _check(
            subject,
            Outcome.FAILED if problems else Outcome.PASSED,
            "; ".join([*problems, said]),
            {"tflops": tflops, "error": error} | ({"floor_tflops": least} if least else {}),
        )


def _check(
    subject: str, outcome: Outcome, said: str, figures: Mapping[str, float] | None = None
) -> Check:
    return Check(Level.L1, subject, _WHAT, outcome, said, figures or {})


def _end(log: str) -> str:
    return " | ".join(line.strip() for line in log.splitlines()[-3:])[-300:]
