"""Pods as the API makes them of requests, and as controllers see them on their way."""

import secrets
from datetime import UTC, datetime
from typing import Any

from gpuclusters.container_api import container
from gpuclusters.container_api.container import LEASE_ANNOTATION, LEASE_GATE
from gpuclusters.container_api.request import ContainerRequest
from tests.fixtures.tenancies import GPU, RUNTIME


def contained(tenant: str, name: str = "", gpus: int = 1) -> dict[str, Any]:
    """The pod of a tenant's container, whose namespace is named after him."""
    asked = {"image": "registry.example.com/cuda:1", "gpus": gpus}
    return container.pod(
        ContainerRequest.model_validate(asked),
        container=name or container.identifier(tenant, secrets.token_hex(4)),
        tenant=tenant,
        namespace=tenant,
        runtime_class=RUNTIME,
        gpu_resource=GPU,
    )


DAY = 1_795_000_000.0
"""A time of day."""


def going(
    *conditions: str,
    uid: str = "u",
    gpus: str = "1",
    state: str = "",
    gated: bool = False,
    leased: bool = True,
    phase: str = "Pending",
    ending: bool = False,
) -> dict[str, Any]:
    """The pod `c`, of which these conditions hold since `DAY`."""
    at = datetime.fromtimestamp(DAY, UTC).isoformat()
    return {
        "metadata": {
            "name": "c",
            "namespace": "tenant-acme",
            "uid": uid,
            "annotations": {LEASE_ANNOTATION: "hgx-01/3"} if leased else {},
            **({"deletionTimestamp": at} if ending else {}),
        },
        "spec": {
            "containers": [{"resources": {"limits": {GPU: gpus}}}],
            "schedulingGates": [{"name": LEASE_GATE}] if gated else [],
        },
        "status": {
            "phase": phase,
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": at} for kind in conditions
            ],
            "containerStatuses": [{"name": "main", "state": {state: {}}}] if state else [],
        },
    }
