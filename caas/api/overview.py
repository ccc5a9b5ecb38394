"""The whole cluster for its operators: what the settings declare beside what the watches have seen."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from caas.api.containers import Containers
from caas.api.problems import (
    GpuCapacityAnswer,
    ShareAnswer,
    SizeCapacityAnswer,
    just_started,
)
from caas.api.store import Store
from caas.settings import Host, Settings
from gpuclusters.container_api.container import State
from gpuclusters.container_api.request import Answer
from gpuclusters.fabric.table import Partition
from gpuclusters.lease.model import Phase, QuarantineReason, lease_name
from gpuclusters.lease.placement import BoardView, Outage, PartitionState, Why

_FROM_GOLDEN = frozenset({QuarantineReason.FIRMWARE_CHANGED, QuarantineReason.KNOBS_CHANGED})

Leases = Mapping[str, Mapping[str, Any]]
"""By name."""


class GpuAnswer(Answer):
    """One GPU and its lease."""

    module: Annotated[int, Field(description="Its slot on the board.", examples=[3])]
    pci: Annotated[str, Field(examples=["0000:87:00.0"])]
    phase: Annotated[Phase | None, Field(description="null: it has no lease.")]
    since: str | None
    reason: Annotated[str, Field(description="One word.", examples=["FirmwareChanged"])]
    message: str
    tenant: Annotated[str | None, Field(description="Who has it, or had it last.")]
    container: str | None


class PartitionAnswer(Answer):
    """GPUs that NVLink joins. Where the board is cut by leases, GPUs that nobody has stand alone."""

    id: Annotated[int | None, Field(description="In the fabric's table; null: not cut.")]
    state: PartitionState
    gpus: list[GpuAnswer]


class MachineAnswer(Answer):
    """A machine and its board."""

    name: Annotated[str, Field(examples=["hgx-01"])]
    baseboard: Annotated[str, Field(examples=["hgx-h100"])]
    outage: Annotated[Why | None, Field(description="Why nothing new starts on it.")]
    message: str | None
    partitions: list[PartitionAnswer]


class TenantAnswer(Answer):
    """A tenancy, and how many containers it has by state."""

    tenant: Annotated[str, Field(examples=["acme"])]
    namespace: str
    ready: bool
    reason: str | None
    ending: bool
    gpus: ShareAnswer
    containers: Mapping[State, int]


class DifferenceAnswer(Answer):
    """Something that is not as the settings declare it."""

    object: Annotated[str, Field(examples=["GPULease hgx-01-gpu3"])]
    problem: str


class ClusterAnswer(Answer):
    """What operators see."""

    cluster: str
    gpus: GpuCapacityAnswer
    sizes: list[SizeCapacityAnswer]
    machines: list[MachineAnswer]
    tenants: list[TenantAnswer]
    drift: Annotated[
        list[DifferenceAnswer],
        Field(
            description="As far as the Kubernetes API tells; `gpu-clusters drift` also looks at the machines."
        ),
    ]


def overview(containers: Containers) -> ClusterAnswer:
    store, settings = containers.store, containers.settings
    if not store.synced:
        raise just_started()
    leases = {lease["metadata"]["name"]: lease for lease in store.leases.all()}
    away = store.outages(host.name for host in settings.hosts)
    gpus, sizes = store.capacity()
    return ClusterAnswer(
        cluster=settings.cluster,
        gpus=gpus,
        sizes=sizes,
        machines=[machine(host, leases, away.get(host.name)) for host in settings.hosts],
        tenants=sorted(_tenants(containers, store), key=lambda one: one.tenant),
        drift=list(differences(settings, leases, away)),
    )


def machine(host: Host, leases: Leases, away: Outage | None) -> MachineAnswer:
    """One machine. Its partitions are those of its layout; without one those that tenants hold."""
    gpus = {gpu.module: _gpu(host, gpu.module, gpu.pci, leases) for gpu in host.gpus}
    view = BoardView.of(host.name, host.offered, {m: gpu.phase for m, gpu in gpus.items()})

    def answer(number: int | None, modules: tuple[int, ...]) -> PartitionAnswer:
        state = view.state(Partition(-1 if number is None else number, modules))
        if away and state is PartitionState.FREE:
            state = PartitionState.UNSCHEDULABLE
        there = [gpus[module] for module in modules if module in gpus]
        return PartitionAnswer(id=number, state=state, gpus=there)

    if host.declared_layout:
        cut = {p.id: p.modules for p in host.offered}
    else:
        cut = {holder["partition"]: tuple(holder["gpus"]) for _, holder in _held(host, leases)}
    joined = {module for modules in cut.values() for module in modules}
    partitions = [answer(number, modules) for number, modules in cut.items()]
    partitions += [answer(None, (module,)) for module in gpus if module not in joined]
    return MachineAnswer(
        name=host.name,
        baseboard=host.baseboard,
        outage=away.why if away else None,
        message=away.message if away else None,
        partitions=sorted(
            partitions, key=lambda one: min((gpu.module for gpu in one.gpus), default=0)
        ),
    )


def differences(
    settings: Settings, leases: Leases, away: Mapping[str, Outage]
) -> Iterator[DifferenceAnswer]:
    """What is there and not declared, declared and not there, or there otherwise."""
    declared = {lease_name(h.name, gpu.module): gpu for h in settings.hosts for gpu in h.gpus}
    for host in settings.hosts:
        if host.name in away and away[host.name].why is Why.GONE:
            yield _difference("Node", host.name, "is not in the cluster")
        if host.declared_layout:
            for name, holder in _held(host, leases):
                if holder["partition"] not in host.partitions:
                    other = f"is held in partition {holder['partition']}, which the layout lacks"
                    yield _difference("GPULease", name, other)
    for name in sorted(declared.keys() - leases.keys()):
        yield _difference("GPULease", name, "is missing; the controllers make it")
    for name in sorted(leases.keys() - declared.keys()):
        yield _difference("GPULease", name, "is of a GPU that the settings do not have")
    for name in sorted(declared.keys() & leases.keys()):
        spec, gpu = leases[name]["spec"], declared[name]
        status = leases[name].get("status") or {}
        if (spec.get("pci"), spec.get("device")) != (gpu.pci, gpu.device):
            found = f"is of {spec.get('pci')}, device {spec.get('device')}"
            wanted = f"declared is {gpu.pci}, device {gpu.device}"
            yield _difference("GPULease", name, f"{found}; {wanted}")
        if status.get("phase") == Phase.QUARANTINED and status.get("reason") in _FROM_GOLDEN:
            yield _difference("GPU", name, str(status.get("message") or status["reason"]))


def _difference(kind: str, name: str, problem: str) -> DifferenceAnswer:
    return DifferenceAnswer(object=f"{kind} {name}", problem=problem)


def _held(host: Host, leases: Leases) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The leases of a host that somebody holds, with their holders."""
    for gpu in host.gpus:
        name = lease_name(host.name, gpu.module)
        if holder := (leases.get(name, {}).get("status") or {}).get("holder"):
            yield name, holder


def _gpu(host: Host, module: int, pci: str, leases: Leases) -> GpuAnswer:
    status = leases.get(lease_name(host.name, module), {}).get("status") or {}
    holder = status.get("holder") or {}
    return GpuAnswer(
        module=module,
        pci=pci,
        phase=status.get("phase"),
        since=status.get("since"),
        reason=status.get("reason") or "",
        message=status.get("message") or "",
        tenant=holder.get("tenant") or status.get("lastTenant"),
        container=holder.get("container") or holder.get("pod"),
    )


def _tenants(containers: Containers, store: Store) -> Iterator[TenantAnswer]:
    for found in store.tenancies.all():
        tenancy = store.tenancy(found["metadata"]["name"])
        states = Counter(one.state for one in containers.list(tenancy.tenant, None))
        yield TenantAnswer(
            tenant=tenancy.tenant,
            namespace=tenancy.namespace,
            ready=tenancy.ready,
            reason=tenancy.reason,
            ending=tenancy.ending,
            gpus=ShareAnswer(quota=tenancy.gpus, used=tenancy.gpus_used),
            containers=dict(sorted(states.items())),
        )
