"""A tenant's container: how it stands in the cluster as a pod, and what its tenant is told about it.

The pod is made with a scheduling gate and is itself the request for GPUs. Hosts, partitions and other tenants
never appear in what the tenant sees.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from gpuclusters.container_api import image
from gpuclusters.container_api.request import (
    Answer,
    ContainerRequest,
    MountAnswer,
    mounts_of,
    pod_volumes,
)
from gpuclusters.core import scripts
from gpuclusters.core.ports import ObjectKind
from gpuclusters.core.quantity import parse_quantity
from gpuclusters.tenancy.isolation import TENANT_LABEL

_MESSAGES = {
    "MachineRestarted": "its machine was restarted, and what ran there was lost; ask for a new container",
    "MachineShutDown": "its machine was shut down; ask for a new container",
    "NotAccepted": "its machine did not take it in; ask for a new container",
}
_BEFORE_THE_PLUGIN = ("cannot allocate unregistered device", "cannot allocate unhealthy devices")
"""Of the kubelet that finds a pod of before the restart when no device plugin has come back yet."""
_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown"


def end_by_machine(
    status: Mapping[str, Any], terminated: Mapping[str, Any]
) -> tuple[str, str] | None:
    """Reason and message of a pod that a machine ended; None if the container ended by itself."""
    reason, said = status.get("reason"), str(status.get("message") or "")
    if reason == "UnexpectedAdmissionError":
        lost = any(words in said for words in _BEFORE_THE_PLUGIN)
        found = "MachineRestarted" if lost else "NotAccepted"
    elif reason == "NodeShutdown" or (
        reason == "Terminated" and said.startswith(_SHUTDOWN_MESSAGE)
    ):
        found = "MachineShutDown"
    elif terminated.get("reason") == "ContainerStatusUnknown":
        # The kubelet knows that it started it, and its runtime has no trace of it.
        found = "MachineRestarted"
    else:
        return None
    return found, _MESSAGES[found]


EVENT = ObjectKind("", "v1", "events", "Event", namespaced=True)

LEASE_GATE = "gpu-clusters.dev/lease"
"""Scheduling gate of a container that has no GPUs yet; only the lease controller takes it away."""
LEASE_ANNOTATION = "gpu-clusters.dev/lease"
"""`<host>/<partition>` of a container that has its GPUs; only the lease controller sets it."""
CONTAINER_LABEL = "gpu-clusters.dev/container"
"""The container's id, which is also the pod's name."""
NAME_LABEL = "gpu-clusters.dev/name"
USER_LABEL_PREFIX = "user.gpu-clusters.dev/"
"""Before each label of the tenant's own, so that none can pass for one of ours."""
REQUEST_ANNOTATION = "gpu-clusters.dev/request-sha256"
"""Digest of the request: tells a repeated request from another one with the same key."""

MAIN = "main"
"""The name of a container's only container."""
_GIB = 1024**3
_ID_LENGTH = 20


class State(StrEnum):
    """Where a container is between its request and its end."""

    QUEUED = "queued"
    RESERVING = "reserving"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DELETING = "deleting"


class ContainerAnswer(Answer):
    """A container. Which machine has it is not told; nor are values of its environment."""

    id: Annotated[str, Field(examples=["c-4f0a1b2c3d4e5f607182"])]
    name: Annotated[str | None, Field(examples=["training"])]
    image: Annotated[str, Field(examples=["registry.example.com/research/train:1.4"])]
    gpus: Annotated[int, Field(examples=[2])]
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: Annotated[tuple[str, ...], Field(description="Names only.", examples=[["NCCL_DEBUG"]])]
    cpu: Annotated[int | float | None, Field(description="Cores.", examples=[48])]
    memory_gib: Annotated[int | float | None, Field(examples=[384])]
    storage_gib: Annotated[int | float | None, Field(examples=[None])]
    volumes: tuple[MountAnswer, ...]
    user: int | None
    labels: Mapping[str, str]
    state: Annotated[
        State,
        Field(
            description="queued: waits for its turn; reserving: its GPUs are being made ready; "
            "starting: its machine boots and pulls the image; running; succeeded; failed; "
            "deleting: it is being stopped, then it is gone."
        ),
    ]
    reason: Annotated[str | None, Field(description="One word.", examples=["WaitingForGpus"])]
    message: str | None
    exit_code: int | None
    created_at: str
    started_at: str | None
    finished_at: str | None


def identifier(tenant: str, key: str) -> str:
    """The id of what a tenant asks for with an idempotency key; the same for the same key."""
    digest = hashlib.sha256(f"{tenant}\0{key}".encode()).hexdigest()
    return f"c-{digest[:_ID_LENGTH]}"


def pod(
    request: ContainerRequest,
    *,
    container: str,
    tenant: str,
    namespace: str,
    runtime_class: str,
    gpu_resource: str,
    huge_pages: bool = False,
    mounts: Sequence[MountAnswer] = (),
) -> dict[str, Any]:
    """The pod of a request, with its volumes as the tenant has them; it fits the tenants' pod policy."""
    labels = {
        CONTAINER_LABEL: container,
        TENANT_LABEL: tenant,
        **({NAME_LABEL: request.name} if request.name is not None else {}),
        **{f"{USER_LABEL_PREFIX}{key}": value for key, value in request.labels.items()},
    }
    volumes, inside = pod_volumes(mounts)
    env = [{"name": name, "value": _literal(value)} for name, value in request.env.items()]
    words = {
        "container": container,
        "namespace": namespace,
        "labels": labels,
        "annotations": {REQUEST_ANNOTATION: request.digest()},
        "gate": LEASE_GATE,
        "runtime_class": runtime_class,
        "user": request.user,
        "main": MAIN,
        "image": image.full(request.image),
        "command": [*map(_literal, request.command)] or None,
        "args": [*map(_literal, request.args)] or None,
        "env": env or None,
        "mounts": inside or None,
        "resources": request.resources(gpu_resource, huge_pages=huge_pages),
        "volumes": volumes or None,
    }
    return dict(scripts.manifest("container_api/pod.yaml", words))


def view(
    pod: Mapping[str, Any], leases: Iterable[Mapping[str, Any]] = (), *, gpu_resource: str
) -> ContainerAnswer:
    """What the tenant is told about the pod, for which these GPULeases are held."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels: Mapping[str, str] = metadata.get("labels") or {}
    main = next(c for c in spec["containers"] if c["name"] == MAIN)
    amounts: Mapping[str, str] = (main.get("resources") or {}).get("limits") or {}
    status = _main_status(pod)
    ended = status.get("terminated") or {}
    state, reason, message = _state(pod, status, reserved=any(True for _ in leases))
    return ContainerAnswer(
        id=metadata["name"],
        name=labels.get(NAME_LABEL),
        image=main["image"],
        gpus=int(parse_quantity(str(amounts.get(gpu_resource, "0")))),
        command=tuple(_said(word) for word in main.get("command") or ()),
        args=tuple(_said(word) for word in main.get("args") or ()),
        env=tuple(variable["name"] for variable in main.get("env") or ()),
        cpu=amount(amounts.get("cpu"), 1),
        memory_gib=amount(amounts.get("memory")),
        storage_gib=amount(amounts.get("ephemeral-storage")),
        volumes=mounts_of(spec, main),
        user=(spec.get("securityContext") or {}).get("runAsUser"),
        labels={
            key.removeprefix(USER_LABEL_PREFIX): value
            for key, value in sorted(labels.items())
            if key.startswith(USER_LABEL_PREFIX)
        },
        state=state,
        reason=reason,
        message=message,
        exit_code=ended.get("exitCode"),
        created_at=metadata["creationTimestamp"],
        started_at=(status.get("running") or ended).get("startedAt"),
        finished_at=ended.get("finishedAt"),
    )


def _state(
    pod: Mapping[str, Any], status: Mapping[str, Any], *, reserved: bool
) -> tuple[State, str | None, str | None]:
    phase = (pod.get("status") or {}).get("phase")
    if pod["metadata"].get("deletionTimestamp"):
        return State.DELETING, "DeletionRequested", "it is being stopped"
    if phase in ("Succeeded", "Failed"):
        state = State.SUCCEEDED if phase == "Succeeded" else State.FAILED
        ended = status.get("terminated") or {}
        if state is State.FAILED and (by_machine := end_by_machine(pod["status"], ended)):
            return state, *by_machine
        return state, ended.get("reason") or pod["status"].get("reason"), None
    if any(gate["name"] == LEASE_GATE for gate in pod["spec"].get("schedulingGates") or ()):
        if reserved:
            return State.RESERVING, "PreparingGpus", "its GPUs are set aside and made ready"
        return State.QUEUED, "WaitingForGpus", "it gets GPUs as soon as its turn comes"
    if status.get("running") is not None:
        return State.RUNNING, None, None
    reason = (status.get("waiting") or {}).get("reason")
    if reason in _NOT_PULLED:
        return State.STARTING, "ImageNotPulled", _NOT_PULLED_MESSAGE
    return State.STARTING, reason or "StartingMachine", None


# Messages of the node are not told: they would tell about the node. Why an image does not come is one kind,
# or the machine would be a scanner of its own network: refused, timed out and no TLS would be told apart.
# Reasons: kubernetes, pkg/kubelet/images/types.go.
_NOT_PULLED = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "ImageInspectError",
        "InvalidImageName",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_NOT_PULLED_MESSAGE = (
    "its image cannot be pulled: there is none of that name, its registry does not answer, or it wants "
    "credentials that the tenancy does not have"
)


def _main_status(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """`waiting`, `running` or `terminated` of the container; nothing before the kubelet has it."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == MAIN:
            state: Mapping[str, Any] = status.get("state") or {}
            return state
    return {}


def _literal(text: str) -> str:
    """So that Kubernetes, which replaces `$(NAME)` in what it runs, passes on what was written."""
    return text.replace("$", "$$")


def _said(text: str) -> str:
    return text.replace("$$", "$")


def amount(quantity: Any, unit: int = _GIB) -> float | None:
    """A quantity in units, by default GiB; None if it is not known."""
    if quantity is None:
        return None
    number = float(parse_quantity(str(quantity)) / unit)
    return int(number) if number.is_integer() else number
