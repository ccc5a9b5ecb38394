"""What happens to machines and their GPUs: boards cut anew, reboots, drivers, nodes that leave."""

from __future__ import annotations

import re

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
    if not changed_roots(case) & {"layout", "partitions", "table"}:
        return None
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
    machine, gpus = case.machine, case.gpus
    if case.step.action is Action.UPDATE:
        if changed_roots(case) <= {
            "connection",
            "boot_timeout_seconds",
            "shutdown_timeout_seconds",
        }:
            return None
        what = "restarts with another configuration"
    else:
        what = "is deleted" if case.step.action is Action.DELETE else "is made anew"
    return Impact(
        Weight.DANGER,
        case.step,
        f"the service VM of {machine} {what}: its {plural(gpus, 'GPU')} must be free of "
        f"containers{case.users}, or the update stops there",
        machine,
        gpus,
    )


def boot(case: Case) -> Impact | None:
    """What a machine boots with: another of it means a reboot."""
    machine, gpus = case.machine, case.gpus
    if case.step.action is Action.DELETE:
        return Impact(
            Weight.LOOK,
            case.step,
            f"{machine} gets back the kernel arguments and drivers that it had, at its next boot",
            machine,
        )
    if not changed_roots(case) & {"kernel_arguments", "huge_pages_1g", "files"}:
        return None
    if case.new is not None and case.new.text("reboot") == "refuse":
        return Impact(
            Weight.LOOK,
            case.step,
            f"{machine} may need a reboot, which the configuration refuses: the update stops until you have "
            "done it",
            machine,
        )
    return Impact(
        Weight.DANGER,
        case.step,
        f"{machine} is rebooted where it does not run with this yet: its {plural(gpus, 'GPU')} must be free "
        f"of containers{case.users}, or the update stops there",
        machine,
        gpus,
    )


def vfio(case: Case) -> Impact | None:
    """Functions that are bound to vfio-pci."""
    machine, gpus = case.machine, case.gpus
    if case.step.action is Action.UPDATE:
        if changed_roots(case) <= {"connection"}:
            return None
        says = f"functions of {machine} are bound anew to vfio-pci"
        return Impact(Weight.LOOK, case.step, says, machine)
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
    machine, gpus = case.machine, case.gpus
    if case.step.action in (Action.DELETE, Action.REPLACE):
        server = case.old.text("role") == "server"
        says = (
            f"{machine} leaves the control plane, with its copy of etcd"
            if server
            else f"{machine} leaves the cluster: all pods on it end"
        )
        return Impact(Weight.DANGER, case.step, says, machine, gpus)
    if changed_roots(case) <= {"connection", "drain_timeout_seconds"}:
        return None
    was, will = case.old.text("version"), case.new.text("version") if case.new else None
    if was == will:
        return Impact(Weight.LOOK, case.step, f"RKE2 of {machine} may be restarted", machine)
    # A drain that may take no time is none.
    drained = case.new is None or case.new.at("drain_timeout_seconds") != 0
    ends = f": pods on its {plural(gpus, 'GPU')} end" if gpus and drained else ""
    return Impact(
        Weight.DANGER if ends else Weight.LOOK,
        case.step,
        f"{machine} {'is drained and goes' if drained else 'goes'} from RKE2 {was} to {will}{ends}",
        machine,
        gpus if ends else 0,
    )


def maintenance(case: Case) -> Impact | None:
    """A machine that goes out of service, or comes back."""
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, f"{case.machine} serves again", case.machine)
    machine = case.step.resource.text("node") or case.machine
    gpus = case.facts.gpus_by_machine.get(machine, 0)
    if case.step.resource.text("drain") == "evict":
        says = f"{machine} goes out of service: containers{case.users} on its {plural(gpus, 'GPU')} are ended"
        return Impact(Weight.DANGER, case.step, says, machine, gpus)
    says = f"{machine} goes out of service when its containers have ended; it takes no new ones"
    return Impact(Weight.LOOK, case.step, says, machine)


_STOPPING = {
    "machineType", "guestAccelerators", "minCpuPlatform", "machine_type", "accelerator", "gpus",
}  # fmt: skip


def instance(case: Case) -> Impact | None:
    """A rented machine."""
    if case.step.action is Action.UPDATE:
        stops = changed_roots(case) & _STOPPING
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


def mig_layout(case: Case) -> Impact | None:
    """How the GPUs of a node are divided."""
    if case.step.action is Action.UPDATE and not changed_roots(case) & {"layout"}:
        return None
    node = case.machine
    evict = (case.new or case.old).at("evict") is True
    what = "are ended" if evict else "must be gone first, or the update stops there"
    was, will = case.old.text("layout"), case.new.text("layout") if case.new else None
    change = f"from {was} to {will}" if will else f"no longer as {was}"
    return Impact(
        Weight.DANGER,
        case.step,
        f"the {plural(case.gpus, 'GPU')} of {node} are divided {change}: pods that use them {what}",
        node,
        case.gpus,
    )


def changed_roots(case: Case) -> set[str]:
    """The inputs that differ, by their first name."""
    return {re.split(r"[.\[]", found.path, maxsplit=1)[0] for found in differences(case.step)}
