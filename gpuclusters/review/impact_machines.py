"""What happens to machines and their GPUs: boards cut anew, reboots, drivers, nodes that leave."""

from __future__ import annotations

from gpuclusters.review.diffing import differences
from gpuclusters.review.fleet import partitions_of
from gpuclusters.review.impact_case import Case, Impact, Weight, verb
from gpuclusters.review.plan import Action, Resource
from gpuclusters.review.text import listed, plural


def partitions(case: Case) -> Impact | None:
    """A board that is cut anew, or no longer kept cut."""
    machine = case.machine
    before = partitions_of(case.old)
    if case.step.action in (Action.DELETE, Action.REPLACE):
        modules = {m for part in before.values() for m in part}
        return Impact(
            Weight.DANGER,
            case.step,
            f"all NVSwitch partitions of {machine} are switched off: containers{case.users} on its "
            f"{plural(len(modules), 'GPU')} lose NVLink, and the update stops at one that is in use",
            machine,
            len(modules),
        )
    after = partitions_of(case.new) if case.new else {}
    gone = {number: modules for number, modules in before.items() if number not in after}
    if not gone:
        return None
    cut = {m for modules in gone.values() for m in modules}
    numbers = listed([str(number) for number in sorted(gone)])
    return Impact(
        Weight.DANGER,
        case.step,
        f"{machine} is cut anew: {'partition' if len(gone) == 1 else 'partitions'} {numbers} with "
        f"{plural(len(cut), 'GPU')} must be free of containers{case.users}, or the update stops there",
        machine,
        len(cut),
    )


def machine_lost(case: Case) -> Impact | None:
    """The CDI spec of a machine: without it nobody can ask for its GPUs."""
    if case.step.action is Action.UPDATE:
        return None
    machine = case.machine
    gpus = case.gpus
    return Impact(
        Weight.DANGER,
        case.step,
        f"the {plural(gpus, 'GPU')} of {machine} can no longer be asked for; containers{case.users} "
        "there are not started again",
        machine,
        gpus,
    )


def service_vm(case: Case) -> Impact | None:
    """The VM that holds the switches and runs the fabric manager."""
    machine = case.machine
    gpus = case.gpus
    if case.step.action is Action.DELETE:
        what = "is deleted with its fabric manager"
    elif case.step.action is Action.REPLACE:
        what = "is made anew with its fabric manager"
    else:
        what = "is changed and may restart its fabric manager"
    weight = Weight.LOOK if case.step.action is Action.UPDATE else Weight.DANGER
    return Impact(
        weight,
        case.step,
        f"the service VM of {machine} {what}: while it is away no partition of its {plural(gpus, 'GPU')} "
        "can be switched",
        machine,
        0 if weight is Weight.LOOK else gpus,
    )


def boot(case: Case) -> Impact | None:
    """What a machine boots with: another of it means a reboot."""
    machine = case.machine
    gpus = case.gpus
    if case.step.action is Action.DELETE:
        return Impact(
            Weight.LOOK,
            case.step,
            f"{machine} gets back the kernel arguments and drivers that it had, at its next boot",
            machine,
        )
    reboots = {d.path.split(".")[0].split("[")[0] for d in differences(case.step)} & {
        "kernel_arguments",
        "huge_pages_1g",
        "files",
    }
    if not reboots:
        return None
    if case.new is not None and case.new.text("reboot") == "refuse":
        return Impact(
            Weight.LOOK,
            case.step,
            f"{machine} needs a reboot, which the configuration refuses: the update stops until you have done it",
            machine,
        )
    return Impact(
        Weight.DANGER,
        case.step,
        f"{machine} is rebooted: every container{case.users} on its {plural(gpus, 'GPU')} ends",
        machine,
        gpus,
    )


def vfio(case: Case) -> Impact | None:
    """Functions that are bound to vfio-pci."""
    machine = case.machine
    gpus = case.gpus
    if case.step.action is Action.UPDATE:
        return Impact(
            Weight.LOOK, case.step, f"functions of {machine} are bound anew to vfio-pci", machine
        )
    return Impact(
        Weight.DANGER,
        case.step,
        f"GPUs and switches of {machine} leave vfio-pci: no VM can have them",
        machine,
        gpus,
    )


def driver(case: Case) -> Impact | None:
    """An NVIDIA driver on a machine."""
    machine = case.machine
    gpus = case.gpus
    was, will = _version(case.old), _version(case.new) if case.new else ""
    if case.step.action is Action.UPDATE and was == will:
        return None
    change = f"from {was} to {will}" if was and will and was != will else "anew"
    says = (
        f"the NVIDIA driver of {machine} is removed"
        if case.step.action is Action.DELETE
        else f"the NVIDIA driver of {machine} is installed {change}: nothing may use its "
        f"{plural(gpus, 'GPU')} meanwhile, so the node is drained"
    )
    return Impact(Weight.DANGER, case.step, says, machine, gpus)


def _version(resource: Resource) -> str:
    for path in (("version",), ("driver", "version"), ("driver_version",), ("branch",)):
        if found := resource.text(*path):
            return found
    return ""


def rke2_node(case: Case) -> Impact | None:
    """A machine of an RKE2 cluster."""
    machine = case.machine
    if case.step.action in (Action.DELETE, Action.REPLACE):
        server = case.old.text("role") == "server"
        says = (
            f"{machine} leaves the control plane, with its copy of etcd"
            if server
            else f"{machine} leaves the cluster: all pods on it end"
        )
        return Impact(Weight.DANGER, case.step, says, machine, case.gpus)
    was, will = case.old.text("version"), case.new.text("version") if case.new else None
    if was != will:
        return Impact(
            Weight.LOOK,
            case.step,
            f"{machine} is drained and goes from RKE2 {was} to {will}",
            machine,
        )
    return Impact(Weight.LOOK, case.step, f"RKE2 of {machine} may be restarted", machine)


def maintenance(case: Case) -> Impact | None:
    """A machine that is out of service."""
    machine = case.machine
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, f"{machine} serves again", machine)
    return None


def instance(case: Case) -> Impact | None:
    """A rented machine."""
    if case.step.action is Action.UPDATE:
        stops = {d.path.split(".")[0].split("[")[0] for d in differences(case.step)} & {
            "machineType",
            "guestAccelerators",
            "minCpuPlatform",
        }
        return (
            Impact(
                Weight.DANGER,
                case.step,
                f"the machine is stopped to change {listed(sorted(stops))}",
                case.step.name,
                case.gpus,
            )
            if stops
            else None
        )
    machine = case.machine
    gpus = f"its {plural(case.gpus, 'GPU')} and " if case.gpus else ""
    return Impact(
        Weight.DANGER,
        case.step,
        f"the machine {verb(case.step)}: {gpus}what lies on its boot disk goes with it",
        machine,
        case.gpus,
    )
