"""What a plan takes down: which tenants, GPUs, partitions, machines and data."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from gpuclusters.review.diffing import OTHER_SECRET, differences
from gpuclusters.review.fleet import INSTANCE, RENTED, fleet, host_of, partitions_of
from gpuclusters.review.plan import HELM_RELEASE, KEPT, Action, Plan, Resource, Step
from gpuclusters.review.text import listed, plural


class Weight(IntEnum):
    """How much a reviewer has to mind it."""

    NONE = 0
    LOOK = 1
    """Something pauses, or is made anew without a loss."""
    DANGER = 2
    """Containers end, data or isolation is lost, or a machine leaves."""


@dataclass(frozen=True, slots=True)
class Impact:
    """What one step does to those who use the cluster."""

    weight: Weight
    step: Step
    says: str
    """A sentence; names in it are not escaped yet."""
    machine: str = ""
    gpus: int = 0
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cluster is before the plan."""

    plan: Plan
    tenants: tuple[str, ...]
    gpus_by_machine: Mapping[str, int]

    @property
    def users(self) -> str:
        """Whose containers may run there, as part of a sentence."""
        return f" of {listed(list(self.tenants))}" if self.tenants else ""


@dataclass(frozen=True)
class Case:
    """A step that changes or removes what was there."""

    facts: Facts
    step: Step
    old: Resource
    new: Resource | None
    """None where it goes; where it is made anew, what comes."""

    @cached_property
    def machine(self) -> str:
        """The machine that it is on, or else its own name."""
        return host_of(self.facts.plan, self.old) or self.step.name

    @property
    def gpus(self) -> int:
        """GPUs of that machine; 0 if the plan does not tell."""
        return self.facts.gpus_by_machine.get(self.machine, 0)

    @property
    def counted(self) -> str:
        """`8 GPUs`."""
        return plural(self.gpus, "GPU")

    @property
    def patience(self) -> str:
        """How long its node is drained at most, as part of a sentence."""
        seconds = (self.new or self.old).at("drain_timeout_seconds")
        return f" (for {seconds / 60:g} min at most)" if isinstance(seconds, int | float) else ""

    @property
    def must_be_free(self) -> str:
        """The end of a sentence about the GPUs of the machine."""
        users = self.facts.users
        return f"its {self.counted} must be free of containers{users}, or the update stops there"

    @property
    def updates(self) -> bool:
        """Whether it stays, and changes in place."""
        return self.step.action is Action.UPDATE

    def changed(self) -> set[str]:
        """The inputs that differ, by their first name."""
        found = differences(self.step)
        return {re.split(r"[.\[]", one.path, maxsplit=1)[0] for one in found}

    def texts(self, key: str) -> tuple[str | None, str | None]:
        """An input, before and after."""
        return self.old.text(key), self.new.text(key) if self.new else None

    def danger(self, says: str, *, gpus: int = 0, tenant: str = "") -> Impact:
        """Something is lost, on no machine in particular."""
        return Impact(Weight.DANGER, self.step, says, "", gpus, tenant)

    def look(self, says: str) -> Impact:
        """Something pauses, on no machine in particular."""
        return Impact(Weight.LOOK, self.step, says)

    def down(self, says: str, gpus: int | None = None) -> Impact:
        """Containers on GPUs of the machine end; all of them unless it is said how many."""
        lost = self.gpus if gpus is None else gpus
        return Impact(Weight.DANGER, self.step, says, self.machine, lost)

    def pauses(self, says: str) -> Impact:
        """The machine has to be looked at; nothing on it ends."""
        return Impact(Weight.LOOK, self.step, says, self.machine)


Rule = Callable[[Case], Impact | None]
_MACHINE = "gpu-clusters:caas:GpuHost"
_OPENINGS = {
    "the internet": ("spec", "egress", "internet"),
    "the API server": ("spec", "egress", "apiServer"),
}


def impacts(plan: Plan) -> tuple[Impact, ...]:
    """What the steps of a plan take down, the worst first."""
    before = fleet(plan, after=False)
    facts = Facts(
        plan,
        tuple(sorted({tenant for known in before.values() for tenant in known.tenants})),
        {m.name: m.gpus for known in before.values() for m in known.machines.values()},
    )
    gone = [s for s in plan.steps if s.type == _MACHINE and s.action is Action.DELETE]
    leaving = {step.name for step in gone}
    found = [
        impact
        for step in plan.changed
        for impact in _of(facts, step)
        # That a machine leaves says it all.
        if step.action is not Action.DELETE or impact.machine not in leaving
    ]
    found += [_leaves(facts, step) for step in gone]
    return tuple(sorted(found, key=lambda i: (-i.weight, i.step.urn, i.says)))


def _of(facts: Facts, step: Step) -> Iterable[Impact]:
    if step.unprotected:
        says = "is no longer protected: from then on it can be deleted like anything else"
        yield Impact(Weight.DANGER, step, says)
    if step.is_component or step.action in (Action.ADOPT, Action.SAME, Action.READ):
        return
    made = step.action is Action.CREATE
    rule = _WHEN_MADE.get(step.type) if made else _RULES.get(step.type) or _by_prefix(step.type)
    old = step.new if made else step.old
    if old is None:
        return
    impact = rule(Case(facts, step, old, step.new)) if rule else None
    if impact is None and step.action in (Action.DELETE, Action.REPLACE):
        impact = Impact(Weight.LOOK, step, _verb(step))
    if impact is not None:
        yield impact


def _by_prefix(type_: str) -> Rule | None:
    kind = type_.removeprefix(KEPT)
    if kind != type_ and "Driver" in kind:
        return _driver
    if kind != type_ and kind in ("HostFile", "Preflight", "FleetPreflight"):
        return _small
    if type_.startswith("gcp:compute/") and type_.endswith("Disk"):
        return _data("with all data on it")
    return None


def _verb(step: Step) -> str:
    if step.action is Action.DELETE:
        return "is deleted"
    why = listed(sorted(set(step.replace_reasons)))
    because = f", because {why} cannot change in place" if why else ""
    return f"is deleted and made anew{because}"


def _leaves(facts: Facts, step: Step) -> Impact:
    gpus = facts.gpus_by_machine.get(step.name, 0)
    free = f"which must be free of containers{facts.users}"
    says = (
        f"{step.name} leaves with its {plural(gpus, 'GPU')}, {free}: "
        "partitions, service VM, CDI spec and VFIO binding go, and it boots as before next time"
    )
    return Impact(Weight.DANGER, step, says, step.name, gpus)


def _partitions(case: Case) -> Impact | None:
    """A board that is repartitioned, or no longer kept partitioned."""
    users, before = case.facts.users, partitions_of(case.old)
    if not case.updates:
        count = len({m for part in before.values() for m in part})
        return case.down(
            f"all NVSwitch partitions of {case.machine} are switched off: containers{users} on its "
            f"{plural(count, 'GPU')} lose NVLink, and the update stops at one that is in use",
            count,
        )
    after = partitions_of(case.new) if case.new else {}
    gone = sorted(before.keys() - after.keys())
    if not gone or not case.changed() & {"layout", "partitions", "table"}:
        return None
    cut = len({m for number in gone for m in before[number]})
    which = f"{'partition' if len(gone) == 1 else 'partitions'} {listed(list(map(str, gone)))}"
    return case.down(
        f"{case.machine} will be repartitioned: {which} with {plural(cut, 'GPU')} must be free of "
        f"containers{users}, or the update stops there",
        cut,
    )


def _cdi_spec(case: Case) -> Impact | None:
    says = f"the {case.counted} of {case.machine} can no longer be asked for"
    ended = f"containers{case.facts.users} there are not started again"
    return None if case.updates else case.down(f"{says}; {ended}")


def _service_vm(case: Case) -> Impact | None:
    harmless = {"connection", "boot_timeout_seconds", "shutdown_timeout_seconds"}
    if case.updates and case.changed() <= harmless:
        return None
    made_anew = "is deleted" if case.step.action is Action.DELETE else "is made anew"
    what = "restarts with another configuration" if case.updates else made_anew
    return case.down(f"the service VM of {case.machine} {what}: {case.must_be_free}")


def _boot(case: Case) -> Impact | None:
    machine = case.machine
    if case.step.action is Action.DELETE:
        back = "gets back the kernel arguments and drivers that it had, at its next boot"
        return case.pauses(f"{machine} {back}")
    if not case.changed() & {"kernel_arguments", "huge_pages_1g", "files"}:
        return None
    if case.new is not None and case.new.text("reboot") == "refuse":
        stops = "the update stops until you have done it"
        return case.pauses(f"{machine} may need a reboot, which the configuration refuses: {stops}")
    rebooted = f"{machine} is rebooted where it does not run with this yet"
    return case.down(f"{rebooted}: {case.must_be_free}")


def _vfio(case: Case) -> Impact | None:
    if not case.updates:
        return case.down(f"GPUs and switches of {case.machine} leave vfio-pci: no VM can have them")
    says = f"functions of {case.machine} are bound anew to vfio-pci"
    return None if case.changed() <= {"connection"} else case.pauses(says)


def _driver(case: Case) -> Impact | None:
    was, will = _version(case.old), _version(case.new) if case.new else ""
    if case.updates and was == will:
        return None
    what = f"the NVIDIA driver of {case.machine}"
    if case.step.action is Action.DELETE:
        return case.down(f"{what} is removed")
    change = f"from {was} to {will}" if was and will and was != will else "anew"
    unused = f"nothing may use its {case.counted} meanwhile, so the node is drained{case.patience}"
    return case.down(f"{what} is installed {change}: {unused}")


def _version(resource: Resource) -> str:
    paths = (("version",), ("driver", "version"), ("driver_version",), ("branch",))
    return next((found for path in paths if (found := resource.text(*path))), "")


def _rke2_node(case: Case) -> Impact | None:
    machine = case.machine
    if not case.updates:
        if case.old.text("role") == "server":
            return case.down(f"{machine} leaves the control plane, with its copy of etcd")
        return case.down(f"{machine} leaves the cluster: all pods on it end")
    if case.changed() <= {"connection", "drain_timeout_seconds"}:
        return None
    was, will = case.texts("version")
    if was == will:
        return case.pauses(f"RKE2 of {machine} may be restarted")
    # A drain that may take no time is none.
    drained = case.new is None or case.new.at("drain_timeout_seconds") != 0
    goes = f"is drained{case.patience} and goes" if drained else "goes"
    says = f"{machine} {goes} from RKE2 {was} to {will}"
    if case.gpus and drained:
        return case.down(f"{says}: pods on its {case.counted} end")
    return case.pauses(says)


def _maintenance(case: Case) -> Impact | None:
    """A machine that goes out of service, or comes back."""
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, f"{case.machine} serves again", case.machine)
    machine = case.step.resource.text("node") or case.machine
    if case.step.resource.text("drain") != "evict":
        says = f"{machine} goes out of service when its containers have ended; it takes no new ones"
        return Impact(Weight.LOOK, case.step, says, machine)
    gpus = case.facts.gpus_by_machine.get(machine, 0)
    ended = f"containers{case.facts.users} on its {plural(gpus, 'GPU')} are ended"
    says = f"{machine} goes out of service: {ended}"
    return Impact(Weight.DANGER, case.step, says, machine, gpus)


_STOPPING = {
    "machineType", "guestAccelerators", "minCpuPlatform", "machine_type", "accelerator", "gpus",
}  # fmt: skip


def _instance(case: Case) -> Impact | None:
    if case.updates:
        stops = listed(sorted(case.changed() & _STOPPING))
        return case.down(f"the machine is stopped to change {stops}") if stops else None
    gpus = f"its {case.counted} and " if case.gpus else ""
    lost = f"{gpus}what lies on its boot disk goes with it"
    return case.down(f"the machine {_verb(case.step)}: {lost}")


def _mig_layout(case: Case) -> Impact | None:
    if case.updates and "layout" not in case.changed():
        return None
    evict = (case.new or case.old).at("evict") is True
    what = "are ended" if evict else "must be gone first, or the update stops there"
    was, will = case.texts("layout")
    change = f"from {was} to {will}" if will else f"no longer as {was}"
    gpus = f"the {case.counted} of {case.machine}"
    return case.down(f"{gpus} are divided {change}: pods that use them {what}")


_HARMLESS = {
    "api", "connection", "drain_timeout_seconds", "join_timeout_seconds", "build_timeout_seconds",
    "join_token_hours", "schedule_on_control_plane",
}  # fmt: skip
"""Nothing of a usernetes node is made anew for them; a certificate or a taint at the most."""
_RELEASE = {"network", "number", "source"}
"""The volumes of a node keep what it was made with: another one of these makes the node anew."""
_ENGINE = {"account", "docker", "container_toolkit"}


def _usernetes_node(case: Case) -> Impact | None:
    machine, kept = case.machine, "with everything that is kept in it"
    first = case.old.text("role") == "control-plane"
    if not case.updates:
        if first:
            return case.down(f"{machine} is the control plane: the cluster ends, {kept}")
        return case.down(f"{machine} leaves the cluster: all pods on it end")
    changed = case.changed() - _HARMLESS
    ends = f"pods on its {case.counted} end" if case.gpus else "its pods end"
    if changed & _RELEASE:
        too = f", and so does the cluster {kept}" if first else ""
        return case.down(f"the node of {machine} is made anew: {ends}{too}")
    says = f"the container of the node on {machine} is made anew around its volumes: {ends}"
    return case.down(says) if changed else None


def _rootless_host(case: Case) -> Impact | None:
    docker = f"the account's Docker on {case.machine}"
    if not case.updates:
        what = "are deleted" if case.old.at("remove_data") else "stay"
        return case.down(f"{docker} is stopped; its images and volumes {what}")
    ends = f", and pods on its {case.counted} end" if case.gpus else ""
    says = f"{docker} restarts: its node is away for a moment{ends}"
    return case.down(says) if case.changed() & _ENGINE else None


def _tenancy(case: Case) -> Impact | None:
    tenant = case.old.text("tenant") or case.old.name
    gpus, new = _gpus_promised(case.old), _gpus_promised(case.new)
    if case.step.action is Action.DELETE:
        where = f"namespace {case.old.text('namespace') or tenant}"
        says = f"goes: {where} with all containers and volumes in it, and its {plural(gpus, 'GPU')}"
        return case.danger(f"tenant {tenant} {says}", gpus=gpus, tenant=tenant)
    if case.step.action is Action.REPLACE:
        says = f"tenant {tenant} {_verb(case.step)}: all its containers end"
        return case.danger(says, gpus=gpus, tenant=tenant)
    if new < gpus:
        instead = f"{plural(new, 'GPU')} instead of {gpus}"
        return case.look(
            f"tenant {tenant} may hold {instead}; containers above that stay until they end"
        )
    if opened := [word for word, path in _OPENINGS.items() if _opens(case, path)]:
        return case.look(f"containers of {tenant} may reach {' and '.join(opened)}")
    lost = sorted(_sizes(case.old) - _sizes(case.new)) if case.new else []
    sizes = " or ".join(map(str, lost))
    says = f"tenant {tenant} can no longer ask for containers with {sizes} GPUs"
    return case.look(says) if lost else None


def _opens(case: Case, path: tuple[str, ...]) -> bool:
    return case.new is not None and case.new.at(*path) is True and case.old.at(*path) is not True


def _sizes(resource: Resource) -> set[int]:
    sizes = resource.at("spec", "sizes")
    found = sizes if isinstance(sizes, list) else []
    return {int(size) for size in found if isinstance(size, int | float)}


def _gpus_promised(resource: Resource | None) -> int:
    value = resource.at("spec", "gpus") if resource else None
    return int(value) if isinstance(value, int | float) else 0


def _data(what: str) -> Rule:
    """A rule for what holds something that only it has."""

    def rule(case: Case) -> Impact | None:
        return None if case.updates else case.danger(f"{_verb(case.step)}, {what}")

    return rule


def _release(case: Case) -> Impact | None:
    chart = f"the chart {case.old.text('chart') or case.step.name}"
    if case.step.action is Action.DELETE:
        return case.danger(f"{chart} is uninstalled with all that it made")
    if case.step.action is Action.REPLACE:
        return case.danger(f"{chart} is uninstalled and installed again: what it runs pauses")
    was, will = case.texts("version")
    if was != will:
        return case.look(f"{chart} goes from {was} to {will}: its pods are rolled")
    if not any(d.path.startswith(("values", "valueYamlFiles")) for d in differences(case.step)):
        return None  # how long Helm waits, for example
    return case.look(f"{chart} gets other values: pods that read them are rolled")


def _workload(case: Case) -> Impact | None:
    if not case.updates:
        return case.look(f"{_verb(case.step)}: its pods end")
    rolled = any(d.path.startswith("spec.template") for d in differences(case.step))
    return case.look("its pods are rolled") if rolled else None


def _secret(case: Case) -> Impact | None:
    if not case.updates:
        return case.look(f"{_verb(case.step)}, with the secrets in it")
    fresh = [found.path for found in differences(case.step) if found.note == OTHER_SECRET]
    says = f"gets {plural(len(fresh), 'other secret')}: {listed(fresh)}"
    return case.look(says) if fresh else None


_UNITS = re.compile(r"[\w@-]+(?=\.service\b)")
_COMMANDS = {
    "packages": "packages that the machine lacks are installed",
    "kata": "the installation of Kata is verified again; nothing on the machine changes",
}
"""What our own commands do, by the end of their names."""


def _command(case: Case) -> Impact | None:
    if case.step.action is Action.DELETE:
        return Impact(Weight.NONE, case.step, "its command for removal is run, if it has one")
    said = _COMMANDS.get(case.step.name.rpartition("-")[2], "the command runs again")
    units = _UNITS.findall((case.new or case.old).text("create") or "")
    if units:
        said = f"{listed(units)} of {case.machine} restart; containers that run go on"
    return case.look(said)


def _small(case: Case) -> Impact | None:
    """What is put back on the machine without anybody noticing."""
    return None if case.updates else Impact(Weight.NONE, case.step, _verb(case.step))


_WHEN_MADE: Mapping[str, Rule] = {f"{KEPT}NodeMaintenance": _maintenance}
_RULES: Mapping[str, Rule] = {
    f"{KEPT}TenancyPolicy": _tenancy,
    f"{KEPT}FabricPartitions": _partitions,
    f"{KEPT}CdiSpec": _cdi_spec,
    f"{KEPT}ServiceVm": _service_vm,
    f"{KEPT}HostBoot": _boot,
    f"{KEPT}VfioBinding": _vfio,
    f"{KEPT}Rke2Node": _rke2_node,
    f"{KEPT}UsernetesNode": _usernetes_node,
    f"{KEPT}RootlessHost": _rootless_host,
    f"{KEPT}Rke2Tokens": _data("and no machine can join with the old tokens"),
    f"{KEPT}NodeMaintenance": _maintenance,
    f"{KEPT}MigLayout": _mig_layout,
    INSTANCE: _instance,
    RENTED: _instance,
    "command:remote:Command": _command,
    HELM_RELEASE: _release,
    "kubernetes:core/v1:Secret": _secret,
    "kubernetes:core/v1:Namespace": _data("with all objects in it"),
    "kubernetes:core/v1:PersistentVolumeClaim": _data("with the data of the volume"),
    "kubernetes:core/v1:PersistentVolume": _data("with its data, if it is not kept"),
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": _data(
        "and with it every object of that kind in the cluster"
    ),
    "kubernetes:apps/v1:StatefulSet": _workload,
    "kubernetes:apps/v1:Deployment": _workload,
    "kubernetes:apps/v1:DaemonSet": _workload,
    "gcp:compute/network:Network": _data("with every connection over it"),
    "gcp:storage/bucket:Bucket": _data("with everything in it"),
}
