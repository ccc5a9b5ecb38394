"""What forbids to install a driver on a host, what it lacks, and what is true of every driver. Pure.

Sources: NVIDIA's driver installation guide (Secure Boot, runfiles), the GPU Operator's documentation (it
leaves its own driver away where the host has one). Which GPUs a branch knows stands in `rke2_matrix`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

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
_KERNEL_LOG = "look at `dmesg | grep -e NVRM -e Xid` on the host"
_RESTARTS = ("boot", "restart")


def gpu_count(found: int, declared: int, *, seen_by: str = "nvidia-smi") -> Iterator[Finding]:
    """Whether the host has as many GPUs as are declared."""
    if found != declared:
        problem = f"{seen_by} shows {found} GPUs and {declared} are declared"
        yield blocked("driver.gpu-count", problem)


def generations(
    pci_ids: Iterable[str], branch: int, modules: ModulesPolicy, *, version: str, remedy: str = ""
) -> Iterator[Finding]:
    """Whether a driver knows these GPUs, by their PCI ids; `version` is how messages name the driver."""
    table = rke2_matrix.matrix().drivers
    for one in Architecture:
        known = sorted({i for i in pci_ids if gpu_products.generation(i) is one})
        if not known:
            continue
        last = rke2_matrix.last_branch_for(one)
        if branch > last and last != max(table):
            knows = f"{version} does not know its GPUs ({', '.join(known)})"
            other = remedy or f"write driver.branch: {last} for this pool"
            yield Finding(
                "driver.branch-unfit", f"{knows}: {last} is the last branch for {one}", other
            )
        problem = rke2_matrix.module_problem(modules, branch, one)
        if problem:
            is_closed = modules is ModulesPolicy.PROPRIETARY
            other = str(model.Modules.OPEN if is_closed else model.Modules.PROPRIETARY)
            text = f"its GPUs ({', '.join(known)}) {problem}; {version} has {modules} ones"
            other = remedy or f"write driver.modules: {other} for this pool"
            yield Finding("driver.modules-unfit", text, other)


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
        problem = (
            f"its driver serves no GPU: nvidia-smi ended with {smi}{f' ({said})' if said else ''}"
        )
        remedy = f"install a driver (driver.source: host does), or {_KERNEL_LOG}"
        yield Finding("driver.not-serving", problem, remedy)
    elif not unfit:
        yield from gpu_count(shown, gpus)


def running(live: model.LiveDriver, *, own: bool) -> Iterator[Finding]:
    """What is not well about the driver that a host runs, whatever was declared; `own`: it is the host's."""
    if live.nouveau:
        yield _nouveau()
    if live.loaded and live.smi:
        problem = f"nvidia-smi ends with {live.smi}: {live.smi_said or 'nothing said'}"
        remedy = "docs/rke2-hosts.md has what each exit status means"
        yield Finding("driver.not-serving", problem, remedy)
    if own and live.loaded and live.module and live.loaded != live.module:
        problem = f"the kernel runs driver {live.loaded}, {live.module} is installed"
        yield repair("driver.loaded-other", problem, "restart")
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
    return repair("driver.nouveau", "nouveau has its GPUs", "restart", path="nouveau")


def _waits(level: Level) -> Finding:
    problem = "the system waits for a restart, most often for a newer kernel"
    step = "boot" if level is Level.REPAIR else ""
    remedy = "restart it while it is drained"
    return Finding("driver.restart-required", problem, remedy, level=level, step=step)


def _repairs(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages | None
) -> Iterator[Finding]:
    changed = differing(contents(live), live.file)
    for path in sorted(changed):
        yield repair("driver.file-changed", f"{path} differs", "files", path=path, missing=True)
    if model.NOUVEAU_FILE in changed or live.initramfs != initramfs_digest():
        problem = "the initramfs was not built without nouveau"
        yield repair("driver.initramfs", problem, "initramfs", missing=True)
    if live.nouveau:
        yield _nouveau()
    if names := loose(live, wanted):
        problem = f"packages are not held: {', '.join(names)}"
        yield repair("driver.not-held", problem, "hold", missing=True)
    if wanted is not None:
        yield from _packages(inputs, live, wanted)


def _packages(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages
) -> Iterator[Finding]:
    missing = wanted.missing(live)
    if wanted.stream and live.stream != wanted.stream:
        text = f"the module stream is {live.stream or 'not set'} and not {wanted.stream}"
        yield repair("driver.stream", text, "install", missing=not live.stream)
    for name in missing:
        has = live.package.get(name)
        text = f"the package {name} is {has or 'not there'}"
        yield repair("driver.packages", text, "install", path=name, missing=has is None)
    kind = "open" if live.loaded_open else "proprietary"
    is_open = inputs.modules is model.Modules.OPEN
    if not live.loaded:
        yield repair("driver.not-loaded", "the kernel runs no driver", "load")
    elif live.loaded != inputs.version or live.loaded_open is not is_open:
        text = f"the kernel runs {kind} modules and not {inputs.modules} ones"
        if live.loaded != inputs.version:
            text = f"the kernel runs driver {live.loaded} and not {inputs.version}"
        yield repair("driver.loaded-other", text, "restart", _KERNEL_LOG)
    if live.module and live.module != (live.loaded or inputs.version) and missing:
        text = f"module {live.module} is on the disk and {live.loaded or 'none'} in the kernel"
        yield repair("driver.module-other", text, "install")
    up = live.fabric_enabled and live.fabric_manager == "active"
    if inputs.nvswitch and not (up and wanted.fabric_manager not in missing):
        state = live.fabric_manager or "not there"
        text = f"the fabric manager is {state}{'' if live.fabric_enabled else ' and not enabled'}"
        is_missing = not live.fabric_manager
        yield repair("driver.fabric-manager", text, "fabric", missing=is_missing)


def _machine(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> Iterator[Finding]:
    if live.architecture != "x86_64":
        yield blocked("driver.architecture", f"its processor is {live.architecture}")
    yield from gpu_count(len(live.gpu), inputs.gpus, seen_by="the PCI bus")
    if inputs.source is model.DriverSource.HOST and inputs.nvswitch is not bool(live.switch):
        declared = "some are" if inputs.nvswitch else "none is"
        problem = f"it has {len(live.switch)} NVSwitches and {declared} declared"
        yield blocked("driver.nvswitch-count", problem)
    told = command_line.effective(command_line.split(live.command_line))
    taken = [gpu.address for gpu in live.gpu if gpu.driver == _VFIO]
    if "nvidia" in told.get("module_blacklist", "").split(",") or taken:
        why = f"{_VFIO} has {', '.join(taken)}" if taken else "module_blacklist=nvidia"
        problem = f"it is prepared to pass its GPUs to virtual machines ({why})"
        yield blocked("driver.passthrough", problem)
    if live.free_mib < LEAST_FREE_MIB:
        has = f"it has {live.free_mib} MiB free in /var or /boot"
        yield blocked("driver.disk-full", f"{has}, and the driver needs {LEAST_FREE_MIB}")


def _host_driver(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, wanted: model.Packages | None
) -> Iterator[Finding]:
    if inputs.source is not model.DriverSource.HOST:
        there = live.module or ", ".join(model.others(live))
        if there:
            problem = f"a driver is installed on the host ({there})"
            why = "the operator leaves its own away where it finds one"
            yield blocked("driver.installed", f"{problem}, and {why}")
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
        yield blocked(
            "driver.secure-boot",
            "Secure Boot is on, and these modules are built on the host, so that nobody has signed them "
            '("Key was rejected by service")',
        )
    foreign = model.others(live, inputs.version or "")
    if foreign and not live.file:
        yield blocked("driver.foreign", f"another driver is installed there: {', '.join(foreign)}")


def disturbs(live: model.LiveDriver, repairs: Iterable[Finding]) -> bool:
    """Whether programs on the GPUs would not survive these repairs."""
    steps = {one.step for one in repairs}
    return bool(steps & {*_RESTARTS}) or ("install" in steps and bool(live.loaded))


def in_use(live: model.LiveDriver) -> Iterator[Finding]:
    """Who computes on its GPUs."""
    if live.user:
        yield blocked("driver.in-use", f"its GPUs are in use by processes {', '.join(live.user)}")


def _disturbed(
    inputs: model.GpuDriverInputs, live: model.LiveDriver, repairs: list[Finding], *, drained: bool
) -> Iterator[Finding]:
    why = [one.problem for one in repairs if one.step in _RESTARTS]
    if why and inputs.reboot is RebootPolicy.REFUSE:
        problem = f"it must be restarted: {'; '.join(why)}; and restarts are not allowed"
        yield blocked("driver.restart-refused", problem)
    if not disturbs(live, repairs):
        return
    # On a node that can be drained they are pods, most often; whoever is left then is none.
    if not (live.node and inputs.control) or drained:
        yield from in_use(live)
    if live.node and not inputs.control:
        problem = "it is a node of a cluster, and no server is known that could drain it"
        yield blocked("driver.not-drainable", problem)


def _serves(inputs: model.GpuDriverInputs, live: model.LiveDriver) -> Iterator[Finding]:
    """It serves all GPUs, which is more than being installed."""
    if live.module and live.module != inputs.version:
        problem = f"the packages brought module {live.module}, and {inputs.version} is wanted"
        remedy = (
            "write the driver.version that the repository has, or set up one that has this version"
        )
        yield Finding("driver.module-other", problem, remedy)
    elif live.smi != 0 or len(live.shown) != inputs.gpus:
        known = known_errors.explain("driver", live.smi_said)
        cause = f"nvidia-smi exited with {live.smi}" if live.smi else "a GPU does not start"
        said = f" ({live.smi_said})" if live.smi_said else ""
        does = f"driver {live.loaded} runs and serves {len(live.shown)} of {inputs.gpus} GPUs"
        problem = f"{does}: {known.cause if known else cause}{said}"
        yield Finding("driver.not-serving", problem, known.remedy if known else _KERNEL_LOG)
