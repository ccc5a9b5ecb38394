"""Preflight: GPUs, switches and their drivers."""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.core.finding import Finding
from gpuclusters.domain.preflight_expects import VfioBackend, listed
from gpuclusters.domain.preflight_facts import Bar, PciFact
from gpuclusters.domain.preflight_finding import Check, Look, wrong

_MIB = 2**20
_FOUR_GIB = 2**32
_VFIO = "vfio-pci"
_HOST_DRIVERS = frozenset({"nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nouveau"})


def functions_are_there(look: Look) -> Iterator[Finding]:
    """Something is at every configured address."""
    for address in look.expects.functions:
        if address not in look.facts.functions:
            yield wrong(
                "function-missing",
                f"{look.expects.name(address)}: no PCI function",
                look.expects.wanted_id(address) or "a PCI function",
            )


def functions_are_what_they_should_be(look: Look) -> Iterator[Finding]:
    """The right kind of device is at every address."""
    for function in look.configured():
        wanted = look.expects.wanted_id(function.address)
        if wanted is not None and function.pci_id != wanted:
            yield wrong(
                "wrong-function",
                f"{look.expects.name(function.address)}: PCI id {function.pci_id}",
                wanted,
            )


def no_function_is_forgotten(look: Look) -> Iterator[Finding]:
    """Every GPU and switch of the machine is in the configuration."""
    ours = set(look.expects.functions)
    wanted = {look.expects.gpu_pci_id: "GPU", look.expects.switch_pci_id: "NVSwitch"}
    for function in look.facts.functions.values():
        kind = wanted.get(function.pci_id)
        if kind is not None and function.address not in ours:
            yield wrong(
                "unlisted-function",
                f"{kind} {function.address} ({function.pci_id}) is not configured",
                f"{len(look.expects.gpus)} GPUs and {len(look.expects.switches)} switches",
            )


def functions_answer(look: Look) -> Iterator[Finding]:
    """None fell off the bus."""
    for function in look.configured():
        if function.answers is False:
            header = f"{function.header[14]:02x}" if len(function.header) > 14 else "ff"
            yield wrong(
                "off-the-bus",
                f"{look.expects.name(function.address)}: revision "
                f"{function.header[8] if len(function.header) > 8 else 255:02x}, header type {header}",
                "an ordinary header",
            )


def bars_are_right(look: Look) -> Iterator[Finding]:
    """Every memory window of every GPU is placed, in its size, the large ones above 4 GiB."""
    for gpu in look.gpus():
        if not gpu.bars or gpu.answers is False:
            continue
        for number, mib in sorted(look.expects.gpu_bars_mib.items()):
            yield from _bar(look.expects.name(gpu.address), gpu.bars.get(int(number)), number, mib)


def _bar(name: str, bar: Bar | None, number: str, mib: int) -> Iterator[Finding]:
    where, wanted = f"{name}: BAR{number}", _size(mib * _MIB)
    if bar is None or bar.size == 0 or bar.start == 0:
        yield wrong("bar-not-placed", f"{where} has no address", wanted)
    elif bar.size != mib * _MIB:
        yield wrong("bar-size", f"{where} is {_size(bar.size)}", wanted)
    elif bar.size >= _FOUR_GIB and bar.start < _FOUR_GIB:
        yield wrong("bar-below-4g", f"{where} begins at {bar.start:#x}", "above 4 GiB")


def _size(size: int) -> str:
    return f"{size // 2**30} GiB" if size >= 2**30 else f"{size // _MIB} MiB"


def gpus_can_be_reset(look: Look) -> Iterator[Finding]:
    """The kernel knows how to reset each GPU."""
    for gpu in look.gpus():
        if gpu.resettable is False:
            yield wrong(
                "reset-missing", f"{look.expects.name(gpu.address)}: no reset method", "flr or bus"
            )


def no_driver_of_the_host_is_loaded(look: Look) -> Iterator[Finding]:
    """Neither nvidia nor nouveau."""
    loaded = sorted(look.facts.modules & _HOST_DRIVERS)
    if loaded:
        yield wrong("driver-loaded", f"loaded kernel modules: {listed(loaded)}", "none of them")


def functions_are_on_vfio(look: Look) -> Iterator[Finding]:
    """Everything that goes to a VM is bound to vfio-pci."""
    for function in look.configured():
        if function.driver != _VFIO:
            yield wrong(
                "not-on-vfio",
                f"{look.expects.name(function.address)}: driver {function.driver or 'none'}",
                _VFIO,
            )


def vms_can_open_them(look: Look) -> Iterator[Finding]:
    """The device nodes of the chosen backend are there."""
    nodes, backend = look.facts.nodes, look.expects.vfio
    if backend is VfioBackend.IOMMUFD and "/dev/iommu" not in nodes:
        yield wrong("iommufd-missing", "/dev/iommu is not there", "/dev/iommu")
        return
    # `auto` takes the new form only where both the machine and the function have it.
    iommufd = "/dev/iommu" in nodes and backend is not VfioBackend.LEGACY
    if "/dev/vfio/vfio" not in nodes and not iommufd:
        yield wrong("vfio-node-missing", "/dev/vfio/vfio is not there", "/dev/vfio/vfio")
    for function in look.configured():
        if function.driver != _VFIO:
            continue  # said already
        node = _node(function, iommufd=iommufd, must=backend is VfioBackend.IOMMUFD)
        if node is None or node not in nodes:
            yield wrong(
                "vfio-node-missing",
                f"{look.expects.name(function.address)}: {node or 'no VFIO device'} is not there",
                node or "/dev/vfio/<group>",
            )


def _node(function: PciFact, *, iommufd: bool, must: bool) -> str | None:
    if iommufd and function.vfio_device is not None:
        return f"/dev/vfio/devices/{function.vfio_device}"
    if must or function.iommu_group is None:
        return None
    return f"/dev/vfio/{function.iommu_group}"


def the_kernel_runs_vms(look: Look) -> Iterator[Finding]:
    """KVM is loaded."""
    if "/dev/kvm" not in look.facts.nodes:
        yield wrong("kvm-missing", "/dev/kvm is not there", "/dev/kvm")


def nobody_uses_the_gpus(look: Look) -> Iterator[Finding]:
    """No process has a GPU open through the host's driver; VMs on vfio-pci are what it is all for."""
    users = [h for h in look.facts.holders if h.through == "driver"]
    if users:
        shown = listed(f"{h.name or 'process'} ({h.pid})" for h in users)
        yield wrong("gpus-in-use", f"held open through the host's driver by {shown}", "nobody")


CHECKS: tuple[Check, ...] = (
    functions_are_there,
    functions_are_what_they_should_be,
    no_function_is_forgotten,
    functions_answer,
    bars_are_right,
    gpus_can_be_reset,
    no_driver_of_the_host_is_loaded,
    functions_are_on_vfio,
    vms_can_open_them,
    the_kernel_runs_vms,
    nobody_uses_the_gpus,
)
