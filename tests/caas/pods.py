"""Pods as the API makes them of requests."""

import secrets
from typing import Any

from gpuclusters.container_api import container
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
