"""Row 13 too: what is added to the machines' boot does not contradict what is set from other keys."""

from __future__ import annotations

from collections.abc import Iterable

from gpuclusters.boot.command_line import key_of
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.fault import finding, show
from gpuclusters.config.rules.rule import rule
from gpuclusters.core.finding import Finding

_SET_ELSEWHERE = {
    "amd_iommu": "preparation.cpu",
    "intel_iommu": "preparation.cpu",
    "iommu": "preparation.cpu",
    "default_hugepagesz": "nodes[].hugepages-gib-per-numa-node",
    "hugepages": "nodes[].hugepages-gib-per-numa-node",
    "hugepagesz": "nodes[].hugepages-gib-per-numa-node",
    "module_blacklist": "the list of drivers that would take a GPU",
    "vfio_pci.ids": "preparation.early-claim",
}


@rule(13, "caas.kernel-argument-twice")
def extra_arguments_are_not_set_elsewhere(config: CaasConfig) -> Iterable[Finding]:
    seen: set[str] = set()
    for position, argument in enumerate(config.preparation.extra_kernel_arguments):
        name = key_of(argument)
        path = ("preparation", "extra-kernel-arguments", position)
        if name in _SET_ELSEWHERE:
            yield finding(
                path,
                f"is set already, from {_SET_ELSEWHERE[name]}",
                show(argument),
                "remove it here",
            )
        elif name in seen:
            yield finding(
                path,
                "has the name of another argument before it",
                show(argument),
                "keep one of both",
            )
        seen.add(name)
