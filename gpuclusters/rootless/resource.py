"""`RootlessHost`: rootless Docker with GPUs on one host."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from gpuclusters.providers.reconciling import ConvergingProvider
from gpuclusters.providers.resource import ConvergingResource
from gpuclusters.rootless.model import RootlessHostInputs


class RootlessHostProvider(ConvergingProvider[RootlessHostInputs]):
    """Keeps the host as a node needs it; another version of Docker is an update in place."""

    model = RootlessHostInputs
    identity = frozenset({"connection.host", "account"})
    kept_by = "gpuclusters.rootless.host:RootlessCapability.on"


class RootlessHost(ConvergingResource, module="gpu", name="RootlessHost"):
    """A host on which an account's rootless Docker runs containers that see all GPUs."""

    provider = RootlessHostProvider
    facts: pulumi.Output[Mapping[str, Any]]
    """What others need of it: `uid`, `home`, `runtime_directory`, `docker_host`, versions."""
    gpu_uuids: pulumi.Output[Sequence[str]]
