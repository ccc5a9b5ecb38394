"""What forbids to install a driver on a host, what it lacks, and what is true of every driver. Pure.

Sources: NVIDIA's driver installation guide (Secure Boot, runfiles), the GPU Operator's documentation (it
leaves its own driver away where the host has one). Which GPUs a branch knows stands in `rke2_matrix`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gpuclusters.boot import command_line
from gpuclusters.boot.model import RebootPolicy
from gpuclusters.compat import gpu_products, known_errors, rke2_matrix
from gpuclusters.compat.gpu_products import Architecture
from gpuclusters.compat.rke2_matrix import ModulesPolicy
from gpuclusters.core.finding import Finding, Level, blocked, repair
from gpuclusters.driver import model
from gpuclusters.host.model import differing, sha256_of

LEAST_FREE_MIB = 3072
"""Modules, libraries, the packages themselves, and an initramfs for every kernel."""
_VFIO = "vfio-pci"
_RESTARTS = ("boot", "restart")


def gpu_count(found: int, declared: int, *, seen_by: str = "nvidia-smi") -> Iterator[Finding]:
    """Whether the host has as many GPUs as are declared."""
    if found != declared:
        yield blocked("driver.gpu-count", seen_by=seen_by, count=found, declared=declared)


def generations(
    pci_ids: Iterable[str], branch: int, modules: ModulesPolicy, *, version: str, remedy: str = ""
) -> Iterator[Finding]:
    """Whether a driver knows these GPUs, by their PCI ids; `version` is how messages name the driver."""
    table = rke2_matrix.matrix().drivers
    for one in Architecture:
        known = sorted({i for i in pci_ids if gpu_products.generation(i) is one})
        if not known:
            continue
        last, told = rke2_matrix.last_branch_for(one), {"gpus": known, "version": version}
        if branch > last and last != max(table):
            yield _other(remedy, "driver.branch-unfit", last=last, generation=one, **told)
        if problem := rke2_matrix.module_problem(modules, branch, one):
            is_closed = modules is ModulesPolicy.PROPRIETARY
            other = model.Modules.OPEN if is_closed else model.Modules.PROPRIETARY
            told |= {"have": problem, "modules": modules, "other": other}
            yield _other(remedy, "driver.modules-unfit", **told)


def _other(remedy: str, code: str, **values: Any) -> Finding:
    """A fault of a driver that is declared for a pool; `remedy` where it is declared nowhere."""
    found = blocked(code, **values)
    return replace(found, remedy=remedy or found.remedy)


def serving(
    gpus: int,
    shown: int,
    *,
    version: str,
    licence: str,
    pci_ids: Iterable[str],
    smi: int,
    said: str,
) -> Iterator[Finding]:
    """Whether a driver that others installed serves all GPUs.

    `version` and `licence` are of the module on the disk, `smi` and `said` of `nvidia-smi`.
    """
    branch, unfit = version.partition(".")[0], list[Finding]()
    if branch.isdecimal():
        modules = ModulesPolicy.OPEN if licence == model.OPEN_LICENCE else ModulesPolicy.PROPRIETARY
        named, remedy = f"driver {version}", "let driver.source: host install one that fits"
        unfit = [*generations(pci_ids, int(branch), modules, version=named, remedy=remedy)]
        yield from unfit
    if not unfit and smi != 0:
        ended = f"{smi}{f' ({said})' if said else ''}"
        yield blocked("driver.not-serving", case="of-others", ended=ended)
    elif not unfit:
        yield from gpu_count(shown, gpus)


def running(live: model.LiveDriver, *, own: bool) -> Iterator[Finding]:
    """What is not well about the driver that a host runs, whatever was declared; `own`: it is the host's."""
    if live.nouveau:
        yield _nouveau()
    if live.loaded and live.smi:
        said = live.smi_said or "nothing said"
        yield blocked("driver.not-serving", case="exit-status", live=live, said=said)
    if own and live.loaded and live.module and live.loaded != live.module:
        yield repair("driver.loaded-other", step="restart", case="than-installed", live=live)
    if live.reboot_required:
        yield _waits(Level.WARN)


def contents(live: model.LiveDriver) -> dict[str, str]:
    """Our files on the host, by path."""
    upgrades = {model.UPGRADES_FILE: model.UPGRADES} if live.family == "debian" else {}
    return {model.NOUVEAU_FILE: model.NOUVEAU, **upgrades}


def initramfs_digest() -> str:
    """Of what has to be in the initramfs."""
    return sha256_of(model.NOUVEAU.encode())


def installable(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> model.Packages | None:
    """The packages of the driver; None where the host gets none, or there are none for its system."""
    try:
        return model.packages(inputs, live) if inputs.source is model.DriverSource.HOST else None
    except ValueError:
        return None


def loose(live: model.LiveDriver, wanted: model.Packages | None) -> list[str]:
    """Packages that would be upgraded by themselves: the kernel, and the driver where the host has one."""
    pinned = {*model.kernels(live)}
    if wanted is not None:
        pinned |= set(wanted.held) & {*live.package, *wanted.names}
    return sorted(pinned - live.held)


def findings(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, *, drained: bool = False
) -> Iterator[Finding]:
    """How a host differs from its inputs, and what forbids to change it; `drained`: no pod is left on it."""
    wanted = installable(inputs, live)
    repairs = [*_repairs(inputs, live, wanted)]
    if live.reboot_required and (repairs or live.applied != inputs.digest):
        # Modules are made for one kernel: the one that runs has to be the one that comes up next time too.
        first = ("files", "initramfs")
        repairs = [f if f.step in first else replace(f, step="boot") for f in repairs]
        repairs.append(_waits(Level.REPAIR))
    yield from _machine(inputs, live)
    yield from _host_driver(inputs, live, wanted)
    yield from _disturbed(inputs, live, repairs, drained=drained)
    yield from repairs
    if not repairs and inputs.source is model.DriverSource.HOST:
        yield from _serves(inputs, live)
    if live.reboot_required and not repairs:
        yield _waits(Level.WARN)


def differences(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> Iterator[Finding]:
    """What forbids to take over a driver that is there; a run of ours that was interrupted goes on."""
    if not (live.module or live.loaded) or (live.file and not live.applied):
        return
    for one in findings(inputs, live):
        if not one.missing and one.code != "driver.restart-required":
            yield one


def _nouveau() -> Finding:
    return repair("driver.nouveau", "nouveau", step="restart")


def _waits(level: Level) -> Finding:
    step = "boot" if level is Level.REPAIR else ""
    return replace(repair("driver.restart-required", step=step), level=level)


def _repairs(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages | None
) -> Iterator[Finding]:
    changed = differing(contents(live), live.file)
    for path in sorted(changed):
        yield repair("driver.file-changed", path, step="files", missing=True)
    if model.NOUVEAU_FILE in changed or live.initramfs != initramfs_digest():
        yield repair("driver.initramfs", step="initramfs", missing=True)
    if live.nouveau:
        yield _nouveau()
    if names := loose(live, wanted):
        yield repair("driver.not-held", step="hold", missing=True, names=names)
    if wanted is not None:
        yield from _packages(inputs, live, wanted)


def _packages(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages
) -> Iterator[Finding]:
    missing = wanted.missing(live)
    if wanted.stream and live.stream != wanted.stream:
        there = {"stream": live.stream or "not set", "wanted": wanted.stream}
        yield repair("driver.stream", step="install", missing=not live.stream, **there)
    for name in missing:
        has = live.package.get(name)
        yield repair(
            "driver.packages", name, step="install", missing=has is None, has=has or "not there"
        )
    if not live.loaded:
        yield repair("driver.not-loaded", step="load")
    elif live.loaded != inputs.version:
        yield repair("driver.loaded-other", step="restart", live=live, inputs=inputs)
    elif live.loaded_open is not (inputs.modules is model.Modules.OPEN):
        kind = "open" if live.loaded_open else "proprietary"
        yield repair(
            "driver.loaded-other", step="restart", case="modules", kind=kind, inputs=inputs
        )
    if live.module and live.module != (live.loaded or inputs.version) and missing:
        loaded = live.loaded or "none"
        yield repair(
            "driver.module-other", step="install", case="on-disk", live=live, loaded=loaded
        )
    up = live.fabric_enabled and live.fabric_manager == "active"
    if inputs.nvswitch and not (up and wanted.fabric_manager not in missing):
        state = live.fabric_manager or "not there"
        state += "" if live.fabric_enabled else " and not enabled"
        yield repair(
            "driver.fabric-manager", step="fabric", missing=not live.fabric_manager, state=state
        )


def _machine(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> Iterator[Finding]:
    if live.architecture != "x86_64":
        yield blocked("driver.architecture", live=live)
    yield from gpu_count(len(live.gpu), inputs.gpus, seen_by="the PCI bus")
    if inputs.source is model.DriverSource.HOST and inputs.nvswitch is not bool(live.switch):
        declared = "some are" if inputs.nvswitch else "none is"
        yield blocked("driver.nvswitch-count", count=len(live.switch), declared=declared)
    told = command_line.effective(command_line.split(live.command_line))
    taken = [gpu.address for gpu in live.gpu if gpu.driver == _VFIO]
    if "nvidia" in told.get("module_blacklist", "").split(",") or taken:
        why = f"{_VFIO} has {', '.join(taken)}" if taken else "module_blacklist=nvidia"
        yield blocked("driver.passthrough", why=why)
    if live.free_mib < LEAST_FREE_MIB:
        yield blocked("driver.disk-full", live=live, least=LEAST_FREE_MIB)


def _host_driver(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages | None
) -> Iterator[Finding]:
    if inputs.source is not model.DriverSource.HOST:
        there = live.module or ", ".join(model.others(live))
        if there:
            yield blocked("driver.installed", there=there)
        return
    ids, modules = {gpu.pci_id for gpu in live.gpu}, ModulesPolicy(inputs.modules)
    yield from generations(ids, inputs.branch, modules, version=f"branch {inputs.branch}")
    if wanted is None:
        try:
            model.packages(inputs, live)
        except ValueError as error:
            problem, _, remedy = str(error).partition("; ")
            yield Finding("driver.no-packages", problem, remedy)
        return
    if live.secure_boot and not wanted.signed:
        yield blocked("driver.secure-boot")
    foreign = model.others(live, inputs.version or "")
    if foreign and not live.file:
        yield blocked("driver.foreign", names=foreign)


def disturbs(live: model.LiveDriver, repairs: Iterable[Finding]) -> bool:
    """Whether programs on the GPUs would not survive these repairs."""
    steps = {one.step for one in repairs}
    return bool(steps & {*_RESTARTS}) or ("install" in steps and bool(live.loaded))


def in_use(live: model.LiveDriver) -> Iterator[Finding]:
    """Who computes on its GPUs."""
    if live.user:
        yield blocked("driver.in-use", live=live)


def _disturbed(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, repairs: list[Finding], *, drained: bool
) -> Iterator[Finding]:
    why = "; ".join(one.problem for one in repairs if one.step in _RESTARTS)
    if why and inputs.reboot is RebootPolicy.REFUSE:
        yield blocked("driver.restart-refused", why=why)
    if not disturbs(live, repairs):
        return
    # On a node that can be drained they are pods, most often; whoever is left then is none.
    if not (live.node and inputs.control) or drained:
        yield from in_use(live)
    if live.node and not inputs.control:
        yield blocked("driver.not-drainable")


def _serves(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> Iterator[Finding]:
    """It serves all GPUs, which is more than being installed."""
    if live.module and live.module != inputs.version:
        yield blocked("driver.module-other", live=live, inputs=inputs)
    elif live.smi != 0 or len(live.shown) != inputs.gpus:
        known = known_errors.explain("driver", live.smi_said)
        cause = f"nvidia-smi exited with {live.smi}" if live.smi else "a GPU does not start"
        said = f" ({live.smi_said})" if live.smi_said else ""
        told: dict[str, Any] = {
            "count": len(live.shown),
            "why": f"{known.cause if known else cause}{said}",
        }
        found = blocked("driver.not-serving", live=live, inputs=inputs, **told)
        yield replace(found, remedy=known.remedy) if known else found
