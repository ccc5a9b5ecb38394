"""What the API answers beside containers, as it stands in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from gpuclusters.container_api.container import ContainerAnswer
from gpuclusters.container_api.request import Answer


class ContainersAnswer(Answer):
    """A page of containers, oldest first."""

    items: list[ContainerAnswer]
    next: Annotated[str | None, Field(description="`cursor` of the next page; null at the end.")]


class EventAnswer(Answer):
    """Something that happened to a container."""

    time: str
    type: Annotated[str, Field(examples=["Normal"])]
    reason: Annotated[str, Field(examples=["Pulled"])]
    message: str | None
    count: int


class EventsAnswer(Answer):
    """What happened, oldest first; kept for an hour."""

    items: list[EventAnswer]


_Unschedulable = Annotated[
    int, Field(description="Would be free, but their machine is out of service, or away.")
]


class SizeCapacityAnswer(Answer):
    """Partitions of one size; those of different sizes overlap."""

    gpus: Annotated[int, Field(examples=[2])]
    total: int
    free: Annotated[int, Field(description="Requests of this size that would start at once.")]
    unschedulable: _Unschedulable
    quarantined: Annotated[int, Field(description="Lost until their GPUs are repaired.")]


class GpuCapacityAnswer(Answer):
    """GPUs of the cluster."""

    total: int
    free: int
    unschedulable: _Unschedulable
    unschedulable_by: Annotated[
        Mapping[str, int],
        Field(
            description="The same by what is the matter with the machine. Cordoned: taken out of "
            "service; NotReady: it does not answer; Gone: the cluster does not know it.",
            examples=[{"NotReady": 8}],
        ),
    ]
    recycling: Annotated[int, Field(description="Between two tenants: reset, cleared, verified.")]
    quarantined: int


class ShareAnswer(Answer):
    """The tenant's own."""

    quota: int
    used: int


class CapacityAnswer(Answer):
    """What there is, and what of it the tenant may have and has."""

    gpus: GpuCapacityAnswer
    sizes: list[SizeCapacityAnswer]
    tenant: ShareAnswer


class VolumeAnswer(Answer):
    """A folder on a file server that the tenant's containers may mount."""

    name: Annotated[str, Field(examples=["data"])]
    size_gib: Annotated[int | float | None, Field(examples=[1024])]
    read_only: bool
    ready: Annotated[bool, Field(description="Whether it can be mounted.")]


class TenancyAnswer(Answer):
    """The caller's tenancy."""

    tenant: Annotated[str, Field(examples=["acme"])]
    ready: Annotated[bool, Field(description="Whether every part of its isolation is enforced.")]
    reason: Annotated[str | None, Field(description="One word why not.")]
    gpus: ShareAnswer
    gpu_sizes: Annotated[list[int], Field(examples=[[1, 2]])]
    images: Annotated[
        list[str],
        Field(
            description="Registries, and paths at registries, that images come from; empty: any public one.",
            examples=[["registry.example.com/research"]],
        ),
    ]
    containers: Annotated[int, Field(description="That exist, ended ones included.")]
    max_containers: int
    volumes: list[VolumeAnswer]
    quota: Annotated[Mapping[str, str], Field(description="In Kubernetes' quantities.")]
    used: Mapping[str, str]


class Fault(Answer):
    """One thing that is wrong with a request."""

    field: Annotated[str, Field(examples=["body.gpus"])]
    message: Annotated[str, Field(examples=["Input should be 1, 2, 4 or 8"])]


class ProblemAnswer(Answer):
    """RFC 9457. `type` is stable; branch on it."""

    model_config = ConfigDict(extra="allow", alias_generator=to_camel, populate_by_name=True)

    type: Annotated[str, Field(examples=["https://gpu-clusters.dev/problems/quota-exceeded"])]
    title: Annotated[str, Field(examples=["The tenancy's quota does not allow it"])]
    status: Annotated[int, Field(examples=[409])]
    detail: str
    request_id: Annotated[str, Field(description="Also in the header X-Request-Id.")]
    errors: Annotated[
        list[Fault] | None, Field(description="What is wrong, where several things can be.")
    ] = None
