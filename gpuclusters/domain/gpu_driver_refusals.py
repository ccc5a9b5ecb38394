"""What speaks against installing a driver on a host, all of it at once, before anything is changed. Pure.

Sources: NVIDIA's architecture matrix (Volta and older end with branch 580 and have no open modules; Blackwell
has no proprietary ones, branch 620 neither), its driver installation guide (Secure Boot, runfiles), the GPU
Operator's documentation (a driver on the host makes it leave its own away).
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuclusters.boot import command_line
from gpuclusters.domain.gpu_driver import (
    DriverSource,
    Gpu,
    GpuDriverInputs,
    LiveDriver,
    Modules,
    RebootPolicy,
)
from gpuclusters.domain.gpu_driver_packages import Packages, others
from gpuclusters.domain.gpu_driver_plan import Plan
from gpuclusters.domain.refusals import RefusalError

LAST_OF_VOLTA = 580
FIRST_WITHOUT_PROPRIETARY = 620
LEAST_FREE_MIB = 3072
"""Modules, libraries, the packages themselves, and an initramfs for every kernel."""
_TURING, _BLACKWELL = 0x1E00, 0x2900
"""First PCI ids of the generation; NVIDIA counts them up."""
_VFIO = "vfio-pci"

Finding = tuple[str, str]
"""What is wrong, and what to do."""


def before_changing(
    inputs: GpuDriverInputs,
    live: LiveDriver,
    packages: Packages | str,
    plan: Plan,
    *,
    drained: bool = False,
) -> None:
    """Everything that speaks against it, in one refusal.

    Args:
        inputs: what is wanted.
        live: the host.
        packages: the packages of the driver, or why there are none.
        plan: what would be done.
        drained: whether the node was drained by this run, so that no pod of it is left.

    Raises:
        RefusalError: with all findings.
    """
    found = [*_machine(inputs, live), *_generation(inputs, live)]
    if inputs.source is DriverSource.HOST:
        found += _host_driver(inputs, live, packages)
    else:
        found += _operator(live)
    found += _disturbed(inputs, live, plan, drained=drained)
    if found:
        raise RefusalError(
            inputs.connection.place,
            "; and ".join(problem for problem, _ in found),
            "; ".join(dict.fromkeys(remedy for _, remedy in found)),
        )


def _machine(inputs: GpuDriverInputs, live: LiveDriver) -> Iterator[Finding]:
    if live.architecture != "x86_64":
        yield f"its processor is {live.architecture}", "use an x86_64 machine"
    if len(live.gpus) != inputs.gpus:
        yield (
            f"it shows {len(live.gpus)} GPUs of NVIDIA on the bus and {inputs.gpus} are declared",
            "correct the pool's gpu.count, or look for a GPU that fell off the bus (`lspci -d 10de:`)",
        )
    if inputs.source is DriverSource.HOST and inputs.nvswitch is not bool(live.switches):
        yield (
            f"it has {live.switches} NVSwitches and {'some are' if inputs.nvswitch else 'none is'} declared",
            "correct the pool's gpu.nvswitch: GPUs behind switches do not start without the fabric manager",
        )
    blocked = command_line.effective(command_line.split(live.command_line))
    taken = [gpu.address for gpu in live.gpus if gpu.driver == _VFIO]
    if "nvidia" in blocked.get("module_blacklist", "").split(",") or taken:
        yield (
            "it is prepared to pass its GPUs to virtual machines"
            + (f" ({_VFIO} has {', '.join(taken)})" if taken else " (module_blacklist=nvidia)"),
            "take it out of the `caas` stack first, or use another machine",
        )
    if live.free_mib < LEAST_FREE_MIB:
        yield (
            f"it has {live.free_mib} MiB free in /var or /boot, and the driver needs {LEAST_FREE_MIB}",
            "free space there (`apt-get clean`, old kernels)",
        )


def _generation(inputs: GpuDriverInputs, live: LiveDriver) -> Iterator[Finding]:
    if inputs.source is not DriverSource.HOST:
        return
    old = [gpu for gpu in live.gpus if _number(gpu) < _TURING]
    if old and inputs.branch > LAST_OF_VOLTA:
        yield (
            f"branch {inputs.branch} does not know its GPUs ({_ids(old)}): Volta and older end with "
            f"{LAST_OF_VOLTA}",
            f"write driver.branch: {LAST_OF_VOLTA} for this pool",
        )
    if old and inputs.modules is Modules.OPEN:
        yield (
            f"open modules do not know its GPUs ({_ids(old)}): they begin with Turing",
            "write driver.modules: proprietary for this pool",
        )
    new = [gpu for gpu in live.gpus if _number(gpu) >= _BLACKWELL]
    if new and inputs.modules is Modules.PROPRIETARY:
        yield (
            f"proprietary modules do not know its GPUs ({_ids(new)}): Blackwell has open ones alone",
            "write driver.modules: open for this pool",
        )
    if inputs.modules is Modules.PROPRIETARY and inputs.branch >= FIRST_WITHOUT_PROPRIETARY:
        yield (
            f"branch {inputs.branch} has no proprietary modules any more",
            "write driver.modules: open, or branch 580 for GPUs older than Turing",
        )


def _number(gpu: Gpu) -> int:
    return int(gpu.pci_id.partition(":")[2] or "0", 16)


def _ids(gpus: list[Gpu]) -> str:
    return ", ".join(sorted({gpu.pci_id for gpu in gpus}))


def _host_driver(
    inputs: GpuDriverInputs, live: LiveDriver, packages: Packages | str
) -> Iterator[Finding]:
    if isinstance(packages, str):
        yield packages, "nothing was changed"
        return
    if live.secure_boot and not packages.signed:
        yield (
            "Secure Boot is on, and these modules are built on the host, so that nobody has signed them "
            '("Key was rejected by service")',
            "use prebuilt signed modules (Ubuntu: driver.packages: distribution; SLES: driver.modules: "
            "open), enrol a key of your own (MOK) and sign by hand, or switch Secure Boot off",
        )
    foreign = others(live, inputs.version or "")
    if foreign and not live.digests:
        yield (
            f"another driver is installed there: {', '.join(foreign)}",
            "remove it first (`apt-get purge`, `dnf remove`, `zypper remove`, or `nvidia-uninstall` for a "
            "runfile), then run again",
        )


def _operator(live: LiveDriver) -> Iterator[Finding]:
    there = others(live)
    if live.module or there:
        name = live.module or ", ".join(there)
        yield (
            f"a driver is installed on the host ({name}), and the operator leaves its own away where it "
            "finds one",
            "remove the packages and reboot, or write driver.source: host",
        )


def _disturbed(
    inputs: GpuDriverInputs, live: LiveDriver, plan: Plan, *, drained: bool
) -> Iterator[Finding]:
    if plan.reboot and inputs.reboot is RebootPolicy.NEVER:
        yield (
            f"it must be restarted: {plan.reboot}; and restarts are not allowed",
            "restart it when nothing runs there (`sudo systemctl reboot`) and run again, or write "
            "driver.reboot: allowed",
        )
    if not plan.disturbs:
        return
    # On a node that can be drained they are pods, most often; whoever is left then is none.
    drainable = live.node and bool(inputs.control) and not drained
    if live.users and not drainable:
        yield (
            f"its GPUs are in use by processes {', '.join(live.users)}",
            "drain the node or end them, then run again",
        )
    if live.node and not inputs.control:
        yield (
            "it is a node of a cluster, and no server is known that could drain it",
            "drain it (`kubectl drain`) and stop RKE2 there, then run again",
        )
