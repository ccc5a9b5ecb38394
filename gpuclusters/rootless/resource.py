"""`RootlessHost`: rootless Docker with GPUs on one host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties
from gpuclusters.rootless import decide, files
from gpuclusters.rootless.model import LiveRootless, RootlessHostInputs

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost
    from gpuclusters.rootless.host import RootlessCapability


class RootlessHostProvider(ConvergingProvider[RootlessHostInputs, LiveRootless]):
    """Keeps the host as a node needs it; another version of Docker is an update in place."""

    model = RootlessHostInputs
    identity = frozenset({"connection.host", "account"})

    def capability(
        self,
        inputs: RootlessHostInputs,
        before: Properties,  # noqa: ARG002
        host: SshHost,
    ) -> RootlessCapability:
        """One account on one host."""
        from gpuclusters.core.converge import StderrReporter
        from gpuclusters.rootless.host import RootlessCapability

        return RootlessCapability(inputs, host, StderrReporter())

    def outputs(self, inputs: RootlessHostInputs, live: LiveRootless) -> Properties:  # noqa: ARG002
        """What others need of the host."""
        toolkit = live.package.get(files.TOOLKIT[0], "")
        return {
            "facts": {
                "uid": live.uid,
                "home": live.home,
                "runtime_directory": live.runtime_directory,
                "docker_host": f"unix://{live.runtime_directory}/docker.sock",
                "docker": live.docker_info.version,
                "container_toolkit": toolkit.partition("-")[0],
                "driver": live.module,
                "kernel": live.kernel,
            },
            "gpu_uuids": list(live.gpu),
        }

    def is_absent(self, inputs: RootlessHostInputs, live: LiveRootless) -> bool:
        """Whether nothing of ours is on the host."""
        return decide.is_absent(inputs, live)


class RootlessHost(ConvergingResource, module="gpu", name="RootlessHost"):
    """A host on which an account's rootless Docker runs containers that see all GPUs."""

    provider = RootlessHostProvider
    facts: pulumi.Output[Mapping[str, Any]]
    """What others need of it: `uid`, `home`, `runtime_directory`, `docker_host`, versions."""
    gpu_uuids: pulumi.Output[Sequence[str]]
