"""Whether a machine can be prepared, or is prepared: all findings at once. Pure.

Each check gives a row for each thing that it looks at.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from textwrap import indent
from typing import Any

from gpuclusters.cdi.model import VfioBackend
from gpuclusters.compat.versions import older, parse_release
from gpuclusters.core import codes
from gpuclusters.core.finding import Finding, Level, Refused, blocked
from gpuclusters.fabric.answers import code_of_exit
from gpuclusters.preflight.model import (
    Bar,
    Expects,
    FleetInputs,
    FleetMachine,
    HostFacts,
    NumaFact,
    PciFact,
    Stage,
)

AREA = "preflight."
WARNINGS = frozenset(
    {"fuser-missing", "kernel-old", "libvirt-old", "numa-nodes", "qemu-old", "reset-missing"}
)
"""What `up` tells and goes on; it stops at everything else."""
ONLY_PREPARED = frozenset(
    {
        "driver-loaded", "fabric-client-missing", "fabric-failed", "fabric-initialising", "fabric-mode",
        "fabric-modules", "fabric-partitions", "fabric-unreachable", "fabric-version", "huge-pages-short",
        "iommufd-missing", "kvm-missing", "libvirt-missing", "not-on-vfio", "ovmf-missing", "qemu-missing",
        "vfio-node-missing",
    }
)  # fmt: skip
"""What preparation puts right, so that nobody looks for it before."""
ONLY_BARE = frozenset({"gpus-in-use", "no-package-manager"})
PMC_SIERRA_MEMORY_CONTROLLER = "11f8:4128"

_MIB, _GIB, _FOUR_GIB = 2**20, 2**30, 2**32
_GIB_IN_KIB = 2**20
# Firmware and kernel keep some for themselves before MemTotal is counted (page structures alone are 1.6 %).
_KEPT = 0.05
_VFIO = "vfio-pci"
_HOST_DRIVERS = frozenset({"nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nouveau"})
_ACPI_TABLES = {"GenuineIntel": "DMAR", "AuthenticAMD": "IVRS"}
# What may stay in a group beside functions on vfio-pci (vfio_main.c: vfio_dev_viable): other VFIO
# drivers, the stub, the port driver of bridges; no driver at all is fine too.
_HARMLESS = frozenset({_VFIO, "pci-stub", "pcieport"})
# Packages that bring a kernel module of NVIDIA: Debian's and Ubuntu's names, and those of NVIDIA's own
# repositories. Toolkits, firmware and the fabric manager's client bring none.
_DRIVER_PACKAGE = re.compile(
    r"nvidia-(driver|dkms|kernel|open)(-.*)?|linux-modules-nvidia-.*|kmod-nvidia.*|cuda-drivers.*"
    r"|xserver-xorg-video-nvidia.*"
)
_SHELL_NOT_FOUND = frozenset({126, 127})
_FABRIC_CAUSES = {
    -3: "fabric-mode",
    -6: "fabric-version",
    -8: "fabric-initialising",
    -9: "fabric-unreachable",
    -14: "fabric-initialising",
    -15: "fabric-initialising",
    -22: "fabric-initialising",
}

Row = tuple[bool, str, Mapping[str, Any]]
"""Whether it is wrong, the code without its area, and what was read and expected."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    facts: HostFacts
    expects: Expects
    stage: Stage

    def configured(self) -> list[PciFact]:
        """The functions of the configuration that are on the machine."""
        found = self.facts.functions
        return [found[address] for address in self.expects.functions if address in found]

    def gpus(self) -> list[PciFact]:
        """The GPUs of the configuration that are on the machine."""
        gpus = {*self.expects.gpus.values()}
        return [function for function in self.configured() if function.address in gpus]


def judge(facts: HostFacts, expects: Expects, stage: Stage) -> tuple[Finding, ...]:
    """Hold what was read against what is expected; what `up` stops at comes first."""
    context = CheckContext(facts, expects, stage)
    rows = chain.from_iterable(check(context) for check in _CHECKS)
    found = [
        _finding(name, told) for is_wrong, name, told in rows if is_wrong and stage in stages(name)
    ]
    return (*of_level(Level.BLOCK, found), *of_level(Level.WARN, found))


def of_level(level: Level, found: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level is level]


def stages(code: str) -> frozenset[Stage]:
    """When a fault is looked for."""
    name = code.removeprefix(AREA)
    if name in ONLY_PREPARED:
        return frozenset({Stage.PREPARED})
    return frozenset({Stage.BARE}) if name in ONLY_BARE else frozenset(Stage)


def stage_of(facts: HostFacts, expects: Expects) -> Stage:
    """What a machine looks like: prepared once anything of it is on vfio-pci."""
    found = (facts.functions.get(address) for address in expects.functions)
    taken = any(function is not None and function.driver == _VFIO for function in found)
    return Stage.PREPARED if taken else Stage.BARE


def _finding(name: str, told: Mapping[str, Any]) -> Finding:
    level = Level.WARN if name in WARNINGS else Level.BLOCK
    return replace(blocked(AREA + name, **told), level=level)


def _row(is_wrong: object, name: str, /, **told: Any) -> Row:
    return bool(is_wrong), name, told


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _machine(context: CheckContext) -> Iterator[Row]:
    """The account, the processor, memory, disk and clock."""
    facts, expects = context.facts, context.expects
    flags, pages_of = facts.cpu_flags, sorted(expects.huge_pages_1g.items())
    yield _row(not facts.root, "sudo-password")
    yield _row("hypervisor" in flags, "host-is-virtual")
    yield _row(not flags & {"vmx", "svm"}, "virtualization-off")
    least, has = expects.memory_gib or 0, facts.memory_kib // _GIB_IN_KIB
    is_short = facts.memory_kib < least * _GIB_IN_KIB * (1 - _KEPT)
    yield _row(is_short, "memory-short", has=has, least=least)
    nodes, wanted = len(facts.numa), expects.numa_nodes
    other = nodes and wanted and nodes != wanted
    yield _row(other, "numa-nodes", nodes=nodes, wanted=wanted)
    lacks = any(expects.huge_pages_1g.values()) and "pdpe1gb" not in flags
    yield _row(lacks, "huge-pages-unsupported")
    for number, pages in pages_of:
        node = facts.numa.get(int(number), NumaFact(0, 0))
        room, told = node.memory_kib // _GIB_IN_KIB, {"number": number, "pages": pages}
        yield _row(pages > room, "huge-pages-too-many", room=room, **told)
        yield _row(node.huge_pages_1g < pages, "huge-pages-short", node=node, **told)
    free, room = facts.free_gib, expects.disk_gib
    yield _row(free is not None and free < room, "disk-short", free=free, room=room)
    offset, most = facts.clock_offset_seconds, expects.clock_offset_seconds
    read = f"{abs(offset):.0f} s {'ahead' if offset > 0 else 'behind'}"
    yield _row(abs(offset) > most, "clock-skew", offset=read, most=most)


def _iommu(context: CheckContext) -> Iterator[Row]:
    """The IOMMU, its groups, and who else is in them."""
    facts, name = context.facts, context.expects.name
    table = _ACPI_TABLES.get(facts.cpu_vendor)
    handed_over = table in facts.acpi_tables if table else bool(facts.acpi_tables)
    # Groups are proof of both.
    off = not facts.iommu_groups
    told = {"tables": _listed(sorted(facts.acpi_tables)), "wanted": table or "DMAR or IVRS"}
    yield _row(off and not handed_over, "iommu-firmware-off", **told)
    missed = context.stage is Stage.PREPARED or _is_told(facts)
    said = _listed(word for word in facts.command_line if "iommu" in word)
    yield _row(off and handed_over and missed, "iommu-off", said=said)

    gpus = {gpu.address for gpu in context.gpus()}
    ours = set(context.expects.functions)
    for group in dict.fromkeys(f.iommu_group for f in context.configured() if f.iommu_group):
        members = [f.address for f in context.configured() if f.iommu_group == group]
        together = [address for address in members if address in gpus]
        gpu_names = _listed(map(name, together))
        yield _row(len(together) > 1, "acs-missing", group=group, gpus=gpu_names)
        for function in facts.group_members(group):
            known = function.pci_id == PMC_SIERRA_MEMORY_CONTROLLER
            fault = "memory-controller-left-out" if known else "foreign-in-group"
            told = {"driver": function.driver or "none", "others": _listed(map(name, members))}
            is_wrong = function.address not in ours and _is_in_the_way(function)
            yield _row(is_wrong, fault, function=function, **told)


def _is_told(facts: HostFacts) -> bool:
    """Whether the running kernel uses an IOMMU: on AMD unless told not to, on Intel only if told to.

    Distributions build either way for Intel (CONFIG_INTEL_IOMMU_DEFAULT_ON); a kernel that does without
    being told would have made groups.
    """
    pairs = (word.partition("=") for word in facts.command_line)
    values = {key: value.split(",") for key, _, value in pairs}
    if facts.cpu_vendor == "AuthenticAMD":
        return "off" not in values.get("amd_iommu", ())
    return "on" in values.get("intel_iommu", ())


def _is_in_the_way(function: PciFact) -> bool:
    if function.is_bridge:
        return False
    if function.pci_id == PMC_SIERRA_MEMORY_CONTROLLER:
        # It has no driver of its own today; a group that is left half bound breaks when it gets one.
        return function.driver != _VFIO
    return function.driver is not None and function.driver not in _HARMLESS


def _functions(context: CheckContext) -> Iterator[Row]:
    """GPUs, switches and what they need of the bus."""
    facts, expects = context.facts, context.expects
    for address in expects.functions:
        name, wanted = expects.name(address), expects.wanted_id(address)
        function = facts.functions.get(address)
        if function is None:
            yield True, "function-missing", {"name": name, "wanted": wanted or "a PCI function"}
            continue
        other = function.pci_id != (wanted or function.pci_id)
        yield _row(other, "wrong-function", name=name, function=function, wanted=wanted)
        header = function.header.ljust(16, b"\xff")
        told = {"revision": f"{header[8]:02x}", "type": f"{header[14]:02x}"}
        yield _row(function.answers is False, "off-the-bus", name=name, **told)
        driver = function.driver or "none"
        yield _row(driver != _VFIO, "not-on-vfio", name=name, driver=driver)
    kinds = {expects.gpu_pci_id: "GPU", expects.switch_pci_id: "NVSwitch"}
    configured = f"{len(expects.gpus)} GPUs and {len(expects.switches)} switches"
    for function in facts.functions.values():
        known = function.pci_id in kinds and function.address not in expects.functions
        kind = kinds.get(function.pci_id)
        yield _row(known, "unlisted-function", kind=kind, function=function, configured=configured)
    for gpu in context.gpus():
        name = expects.name(gpu.address)
        if gpu.bars and gpu.answers is not False:
            for number, mib in sorted(expects.gpu_bars_mib.items()):
                bar = gpu.bars.get(int(number), Bar(0, 0))
                yield from _bar(f"{name}: BAR{number}", bar, mib * _MIB)
        yield _row(gpu.resettable is False, "reset-missing", name=name)


def _bar(name: str, bar: Bar, size: int) -> Iterator[Row]:
    placed = bar.size != 0 and bar.start != 0
    low = bar.size == size >= _FOUR_GIB > bar.start
    told = {"name": name, "wanted": _size(size)}
    yield _row(not placed, "bar-not-placed", **told)
    yield _row(placed and bar.size != size, "bar-size", size=_size(bar.size), **told)
    yield _row(placed and low, "bar-below-4g", start=f"{bar.start:#x}", **told)


def _size(size: int) -> str:
    return f"{size // _GIB} GiB" if size >= _GIB else f"{size // _MIB} MiB"


def _device_nodes(context: CheckContext) -> Iterator[Row]:
    """What VMs open: KVM, and the device nodes of the chosen backend."""
    nodes, backend = context.facts.nodes, context.expects.vfio
    yield _row("/dev/kvm" not in nodes, "kvm-missing")
    only_iommufd = backend is VfioBackend.IOMMUFD
    if only_iommufd and "/dev/iommu" not in nodes:
        yield True, "iommufd-missing", {}
        return
    # `auto` takes the new form only where both the machine and the function have it.
    iommufd = "/dev/iommu" in nodes and backend is not VfioBackend.LEGACY
    yield _row("/dev/vfio/vfio" not in nodes and not iommufd, "vfio-node-missing")
    for function in context.configured():
        if iommufd and function.vfio_device is not None:
            node = f"/dev/vfio/devices/{function.vfio_device}"
        elif only_iommufd or function.iommu_group is None:
            node = ""
        else:
            node = f"/dev/vfio/{function.iommu_group}"
        # One that is not on vfio-pci is told as that.
        missing = function.driver == _VFIO and node not in nodes
        told = {"case": "function", "name": context.expects.name(function.address)}
        told |= {"node": node or "no VFIO device", "wanted": node or "/dev/vfio/<group>"}
        yield _row(missing, "vfio-node-missing", **told)


def _software(context: CheckContext) -> Iterator[Row]:
    """Drivers, versions and programs of the host."""
    facts, expects = context.facts, context.expects
    loaded = sorted(facts.modules & _HOST_DRIVERS)
    yield _row(loaded, "driver-loaded", modules=loaded)
    users = [f"{name or 'process'} ({pid})" for pid, name in facts.holders.items()]
    yield _row(users, "gpus-in-use", users=users)
    there = sorted(facts.packages.items())
    packages = [f"{name} {has}" for name, has in there if _DRIVER_PACKAGE.fullmatch(name)]
    yield _row(packages, "driver-installed", packages=packages)
    for name, found, least in (
        ("kernel", facts.kernel, expects.kernel_minimum),
        ("qemu", facts.qemu, expects.qemu_minimum),
        ("libvirt", facts.libvirt, expects.libvirt_minimum),
    ):
        if found is None:
            yield True, f"{name}-missing", {"least": least}
        else:
            release = parse_release(least)
            old = release is not None and older(found, release)
            yield _row(old, f"{name}-old", found=found, least=least)
    yield _row(not facts.firmware, "ovmf-missing")
    yield _row("systemctl" not in facts.commands, "no-systemd")
    yield _row(not facts.commands & {"apt-get", "dnf"}, "no-package-manager")
    yield _row("fuser" not in facts.commands, "fuser-missing")


def _fabric(context: CheckContext) -> Iterator[Row]:
    """`fmpm -l` gives a table with the configured modules in it. Only asked of a cluster that runs."""
    fabric = context.facts.fabric
    if fabric is None:
        return
    if fabric.exit_status in _SHELL_NOT_FOUND:
        yield True, "fabric-client-missing", {}
        return
    if fabric.exit_status:
        cause = _FABRIC_CAUSES.get(code_of_exit(fabric.exit_status), "fabric-failed")
        said = " ".join(fabric.output.split())[:160] or "nothing"
        yield True, cause, {"fabric": fabric, "said": said}
        return
    try:
        partitions = json.loads(fabric.output)["partitionInfo"]
        modules = {int(gpu["physicalId"]) for p in partitions for gpu in p["gpuInfo"]}
    except (ValueError, KeyError, TypeError):
        yield True, "fabric-failed", {"case": "no-table"}
        return
    wanted = {int(module) for module in context.expects.gpus}
    told = {"found": sorted(modules), "wanted": sorted(wanted)}
    yield _row(modules - wanted, "fabric-modules", **told)
    missing, most = sorted(wanted - modules), context.expects.partitions or len(partitions)
    case, counts = "modules" if missing else "", {"count": len(partitions), "most": most}
    is_short = missing or len(partitions) < most
    yield _row(is_short, "fabric-partitions", case=case, missing=missing, **counts)


_CHECKS = (_machine, _iommu, _functions, _device_nodes, _software, _fabric)


def text(finding: Finding) -> str:
    """All about a finding, in a few lines for people."""
    about = codes.of(finding.code)
    source = f"\n    source: {about.source}" if about.source else ""
    said = f"  {finding.code}: {finding.problem}\n    cause: {about.means}\n    do: {about.do}"
    return said + source


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


class FleetError(Refused):
    """Machines that cannot be prepared, each with all that is wrong with it."""

    error_id = "preflight.fleet-unfit"

    def __init__(self, machines: Mapping[str, Sequence[Finding]]) -> None:
        super().__init__("preflight", ())
        self.machines = machines

    def __str__(self) -> str:
        unfit = {name: found for name, found in self.machines.items() if found}
        count = f"{len(unfit)} of {len(self.machines)} machines"
        head = f"{self.target}: {count} cannot be prepared; nothing was changed on any of them"
        reports = (
            f"{name}:\n" + indent("\n".join(map(text, f)), "  ") for name, f in unfit.items()
        )
        return "\n".join([head, *reports])


def to_look_at(inputs: FleetInputs, before: Mapping[str, Any]) -> tuple[FleetMachine, ...]:
    """Machines that are new, or described otherwise than before.

    A machine that was found fit has been prepared since, and runs containers: it is not judged again
    because another one joins.
    """
    unfit = before.get("findings", {})
    stated = (FleetMachine.model_validate(m) for m in before.get("machines") or ())
    fit = [machine for machine in stated if not unfit.get(machine.connection.host)]
    return tuple(machine for machine in inputs.machines if machine not in fit)


def told(level: Level, found: Iterable[Finding]) -> list[Mapping[str, Any]]:
    """Those of the findings, as outputs."""
    return [finding.to_output() for finding in of_level(level, found)]


def outputs(facts: HostFacts, expects: Expects, found: Iterable[Finding]) -> dict[str, Any]:
    """What the resource says of the machine: only what does not change by itself."""
    gpus = {a: facts.functions[a] for a in sorted(expects.gpus.values()) if a in facts.functions}
    shown = {
        address: {
            "iommu_group": gpu.iommu_group or "",
            "driver": gpu.driver or "",
            "numa_node": -1 if gpu.numa_node is None else gpu.numa_node,
        }
        for address, gpu in gpus.items()
    }
    return {
        "kernel": facts.kernel,
        "qemu": facts.qemu or "",
        "libvirt": facts.libvirt or "",
        "memory_gib": facts.memory_kib // _GIB_IN_KIB,
        "gpus": shown,
        "warnings": told(Level.WARN, found),
        "findings": told(Level.BLOCK, found),
    }
