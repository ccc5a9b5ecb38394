"""Whether a machine can be prepared, or is prepared: all findings at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gpuclusters.core.finding import Finding, Level, Refused
from gpuclusters.domain import (
    preflight_functions,
    preflight_iommu,
    preflight_machine,
    preflight_software,
)
from gpuclusters.domain.preflight_expects import Expects, Stage
from gpuclusters.domain.preflight_facts import HostFacts
from gpuclusters.domain.preflight_finding import Check, Look, stages, text
from gpuclusters.fabric import preflight as fabric_preflight

CHECKS: tuple[Check, ...] = (
    *preflight_machine.CHECKS,
    *preflight_iommu.CHECKS,
    *preflight_functions.CHECKS,
    *preflight_software.CHECKS,
    *fabric_preflight.CHECKS,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found on one machine."""

    failures: tuple[Finding, ...]
    warnings: tuple[Finding, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All, failures first."""
        return self.failures + self.warnings


def judge(facts: HostFacts, expects: Expects, stage: Stage) -> Verdict:
    """Hold what was read against what is expected."""
    look = Look(facts, expects, stage)
    found = chain.from_iterable(check(look) for check in CHECKS)
    held = [finding for finding in found if stage in stages(finding.code)]
    return Verdict(
        tuple(f for f in held if f.level is Level.BLOCK),
        tuple(f for f in held if f.level is Level.WARN),
    )


def stage_of(facts: HostFacts, expects: Expects) -> Stage:
    """What a machine looks like: prepared once anything of it is on vfio-pci."""
    found = (facts.functions.get(address) for address in expects.functions)
    taken = any(function is not None and function.driver == "vfio-pci" for function in found)
    return Stage.PREPARED if taken else Stage.BARE


class PreflightError(Refused):
    """A machine that cannot go on, with all that is wrong with it."""

    error_id = "preflight.machine-unfit"

    def __init__(self, where: str, stage: Stage, findings: Sequence[Finding]) -> None:
        super().__init__(where, findings)
        self.stage = stage

    def __str__(self) -> str:
        count = "one finding" if len(self.findings) == 1 else f"{len(self.findings)} findings"
        bare = self.stage is Stage.BARE
        state = "cannot be prepared" if bare else "is not ready for virtual machines"
        head = f"{self.target}: the machine {state}, {count}; nothing was changed by this step"
        return "\n".join([head, *(text(finding) for finding in self.findings)])


def outputs(facts: HostFacts, expects: Expects, verdict: Verdict) -> Mapping[str, Any]:
    """What the resource says of the machine: only what does not change by itself."""
    return {
        "kernel": facts.kernel,
        "qemu": facts.qemu or "",
        "libvirt": facts.libvirt or "",
        "memory_gib": facts.memory_kib // 2**20,
        "gpus": _functions(facts, expects.gpus.values()),
        "warnings": [finding.to_output() for finding in verdict.warnings],
        "findings": [finding.to_output() for finding in verdict.failures],
    }


def _functions(facts: HostFacts, addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
    found = {a: facts.functions[a] for a in addresses if a in facts.functions}
    return {
        address: {
            "iommu_group": function.iommu_group or "",
            "driver": function.driver or "",
            "numa_node": -1 if function.numa_node is None else function.numa_node,
        }
        for address, function in sorted(found.items())
    }
