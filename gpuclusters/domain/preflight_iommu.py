"""Preflight: the IOMMU, its groups, and who else is in them."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain.preflight_expects import Stage, listed
from gpuclusters.domain.preflight_facts import HostFacts, PciFact
from gpuclusters.domain.preflight_finding import Check, Look, wrong

_TABLES = {"GenuineIntel": "DMAR", "AuthenticAMD": "IVRS"}
PMC_SIERRA_MEMORY_CONTROLLER = "11f8:4128"
# What may stay in a group beside functions on vfio-pci (vfio_main.c: vfio_dev_viable): other VFIO
# drivers, the stub, the port driver of bridges; no driver at all is fine too.
_HARMLESS = frozenset({"vfio-pci", "pci-stub", "pcieport"})


def firmware_hands_over_an_iommu(look: Look) -> Iterator[Finding]:
    """The ACPI table of the processor's vendor is there; groups are proof as well."""
    facts = look.facts
    if facts.iommu_groups or _is_handed_over(facts):
        return
    yield wrong(
        "iommu-firmware-off",
        f"ACPI tables of an IOMMU: {listed(sorted(facts.acpi_tables))}",
        _TABLES.get(facts.cpu_vendor, "DMAR or IVRS"),
    )


def _is_handed_over(facts: HostFacts) -> bool:
    table = _TABLES.get(facts.cpu_vendor)
    return table in facts.acpi_tables if table else bool(facts.acpi_tables)


def kernel_uses_the_iommu(look: Look) -> Iterator[Finding]:
    """There are groups. Before preparation only if the kernel should have made them already."""
    facts = look.facts
    if facts.iommu_groups or not _is_handed_over(facts):
        return
    if look.stage is Stage.BARE and not _is_told(facts):
        return
    said = [word for word in facts.command_line if "iommu" in word]
    yield wrong(
        "iommu-off",
        f"no IOMMU group; on the kernel's command line: {listed(said)}",
        "a group for every GPU",
    )


def _is_told(facts: HostFacts) -> bool:
    """Whether the running kernel uses an IOMMU: on AMD unless told not to, on Intel only if told to.

    Distributions build either way for Intel (CONFIG_INTEL_IOMMU_DEFAULT_ON); a kernel that does without
    being told would have made groups.
    """
    values = {
        key: value.split(",")
        for key, _, value in (word.partition("=") for word in facts.command_line)
    }
    if facts.cpu_vendor == "AuthenticAMD":
        return "off" not in values.get("amd_iommu", ())
    return "on" in values.get("intel_iommu", ())


def gpus_are_kept_apart(look: Look) -> Iterator[Finding]:
    """No two GPUs in one group."""
    seen: set[str] = set()
    for gpu in look.gpus():
        group = gpu.iommu_group
        if group is None or group in seen:
            continue
        seen.add(group)
        together = [other for other in look.gpus() if other.iommu_group == group]
        if len(together) > 1:
            names = listed(look.expects.name(one.address) for one in together)
            yield wrong("acs-missing", f"IOMMU group {group} holds {names}", "a group for each GPU")


def groups_hold_nothing_foreign(look: Look) -> Iterator[Finding]:
    """All endpoints in our groups are ours, or without a driver of the host."""
    ours = set(look.expects.functions)
    groups = dict.fromkeys(f.iommu_group for f in look.configured() if f.iommu_group is not None)
    for group in groups:
        for function in look.facts.group_members(group):
            if function.address not in ours and _is_in_the_way(function):
                known = function.pci_id == PMC_SIERRA_MEMORY_CONTROLLER
                yield wrong(
                    "memory-controller-left-out" if known else "foreign-in-group",
                    f"{function.address} ({function.pci_id}, driver {function.driver or 'none'}) is in "
                    f"IOMMU group {group} with "
                    f"{listed(look.expects.name(a) for a in _of_ours(look, group))}",
                    "only functions of this board",
                )


def _of_ours(look: Look, group: str) -> list[str]:
    return [f.address for f in look.configured() if f.iommu_group == group]


def _is_in_the_way(function: PciFact) -> bool:
    if function.is_bridge:
        return False
    if function.pci_id == PMC_SIERRA_MEMORY_CONTROLLER:
        # It has no driver of its own today; a group that is left half bound breaks when it gets one.
        return function.driver != "vfio-pci"
    return function.driver is not None and function.driver not in _HARMLESS


CHECKS: tuple[Check, ...] = (
    firmware_hands_over_an_iommu,
    kernel_uses_the_iommu,
    gpus_are_kept_apart,
    groups_hold_nothing_foreign,
)
