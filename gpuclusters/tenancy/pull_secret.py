"""A tenant's credentials of registries, as the Secret that its pods pull with.

Source: Kubernetes' documentation of `kubernetes.io/dockerconfigjson`; Docker's own registry goes by the
address that `docker login` writes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

_DOCKER = "https://index.docker.io/v1/"


def document(tenant: str, registries: Sequence[str], credentials: Any) -> str:
    """The `.dockerconfigjson` of one tenant.

    Args:
        tenant: its name.
        registries: those that it has passwords for.
        credentials: of all tenants, as read: `username` and `password` by tenant and registry.

    Raises:
        ValueError: it has others than these registries, or is no such mapping; no value is told.
    """
    own = credentials.get(tenant) if isinstance(credentials, Mapping) else None
    if not isinstance(own, Mapping):
        raise ValueError(f"it has nothing for the tenant {tenant}")  # noqa: TRY004 - of what was given
    if missing := ", ".join(sorted(set(registries) - set(own))):
        raise ValueError(f"for the tenant {tenant} it lacks {missing}")
    if spare := ", ".join(sorted(map(str, set(own) - set(registries)))):
        raise ValueError(
            f"for the tenant {tenant} it has {spare}, which images.registry-auth does not"
        )
    return json.dumps(
        {"auths": {_key(name): _auth(tenant, name, own[name]) for name in registries}}
    )


def _key(registry: str) -> str:
    return _DOCKER if registry == "docker.io" else registry


def _auth(tenant: str, registry: str, one: Any) -> dict[str, str]:
    user, password = (
        (one.get("username"), one.get("password")) if isinstance(one, Mapping) else (None, None)
    )
    if not (isinstance(user, str) and isinstance(password, str) and user and password):
        raise ValueError(
            f"for {registry} of the tenant {tenant} it needs username and password, as text"
        )
    together = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"username": user, "password": password, "auth": together}
