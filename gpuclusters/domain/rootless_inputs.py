"""A host that runs rootless Docker with GPUs for one account: what it must be. Pure.

Sources: Docker's documentation of rootless mode (packages, ids, delegation), NVIDIA's container toolkit (four
packages of one version, `nvidia-cdi-refresh` since 1.18), moby (`docker info` shows CDI devices since 28.2).
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gpuclusters.domain.connection import HostConnection
from gpuclusters.domain.text import matches
from gpuclusters.domain.usernetes_versions import limit, table

DEFAULT_PROBE_IMAGE = "docker.io/library/ubuntu:24.04"
"""What `nvidia-smi` is tried in: an image without anything of NVIDIA's, so that all of it is injected."""

_VERSION = r"[0-9]+\.[0-9]+\.[0-9]+"


class RootlessHostInputs(BaseModel):
    """Inputs of one host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    account: Annotated[
        str, matches(r"[a-z_][a-z0-9_-]{0,31}", "write a Linux login name, like ubuntu")
    ]
    """Whom the daemon and all containers belong to; never root."""
    gpus: Annotated[int, Field(ge=1, le=64)]
    """How many the machine has."""
    docker: Annotated[str, matches(_VERSION, "write all three numbers, like 29.7.2")]
    container_toolkit: Annotated[str, matches(_VERSION, "write all three numbers, like 1.20.0")]
    sudo: bool = True
    """False: an administrator prepares the host; what needs root is said and not done."""
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = ()
    """TCP ports that nodes publish on the host: nobody else may listen there."""
    probe_image: Annotated[str, Field(min_length=1, max_length=255)] = DEFAULT_PROBE_IMAGE
    remove_data: bool = False
    """Whether a removal deletes the account's images, volumes and containers too."""

    @model_validator(mode="after")
    def _fits_together(self) -> RootlessHostInputs:
        if self.account == "root":
            raise ValueError("account: rootless Docker belongs to an ordinary account, like ubuntu")
        if not self.sudo and self.connection.user != self.account:
            raise ValueError(
                f"account: without sudo only {self.connection.user} can be prepared, who logs in; write "
                "this name, or connection.user: the account"
            )
        limits = table().limits
        if limit(self.docker) < limit(limits.docker_cdi):
            raise ValueError(
                f"docker: {self.docker} does not show which CDI devices it sees; {limits.docker_cdi} "
                "is the first that does"
            )
        if limit(self.container_toolkit) < limit(limits.toolkit_cdi):
            raise ValueError(
                f"container_toolkit: {self.container_toolkit} does not keep the CDI specification "
                f"up to date by itself; {limits.toolkit_cdi} is the first that does"
            )
        return self

    @property
    def natural_id(self) -> str:
        """`host/rootless`."""
        return f"{self.connection.host}/rootless"

    @property
    def digest(self) -> str:
        """Of all that decides how the host is prepared."""
        known = [self.account, self.gpus, self.docker, self.container_toolkit, self.sudo]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()
