"""Rootless Docker with GPUs on one host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import reconcile_rootless
from gpuclusters.domain.rootless_inputs import DEFAULT_PROBE_IMAGE, RootlessHostInputs
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.rootless_host import SshRootlessHost


class RootlessHostProvider(KeptProvider[RootlessHostInputs]):
    """Keeps the host as a node needs it; another version of Docker is an update in place."""

    model = RootlessHostInputs
    changes_machine = True
    identity = frozenset({"connection.host", "account"})

    def ensure(self, inputs: RootlessHostInputs, before: Properties) -> Properties:  # noqa: ARG002
        """Prepare, start, prove; or only what of it is missing."""
        from gpuclusters.adapters.here import StderrReporter

        live = reconcile_rootless.ensure(inputs, self._reach(inputs), StderrReporter())
        return reconcile_rootless.outputs(inputs, live)

    def observe(self, inputs: RootlessHostInputs, before: Properties) -> Live | None:  # noqa: ARG002
        """The host as it is; None once nothing of ours is on it."""
        live = self._reach(inputs).inspect()
        if not reconcile_rootless.is_there(inputs, live):
            return None
        return Live(reconcile_rootless.outputs(inputs, live), {})

    def has_drifted(self, outputs: Properties) -> bool:
        """Whether the last look found something that is not as it was left."""
        return bool(outputs.get("drift"))

    def remove(self, inputs: RootlessHostInputs, before: Properties) -> None:  # noqa: ARG002
        """Stop the account's daemon, take out what we brought."""
        reconcile_rootless.remove(inputs, self._reach(inputs))

    def _reach(self, inputs: RootlessHostInputs) -> SshRootlessHost:
        from gpuclusters.adapters.rootless_host import SshRootlessHost

        return SshRootlessHost(host(inputs.connection, self.ssh_key), inputs)


class RootlessHost(Resource, module="gpu", name="RootlessHost"):
    """A host on which an account's rootless Docker runs containers that see all GPUs."""

    facts: pulumi.Output[Mapping[str, Any]]
    """What others need of it: `uid`, `home`, `runtime_directory`, `docker_host`, versions."""
    gpu_uuids: pulumi.Output[Sequence[str]]
    drift: pulumi.Output[Sequence[str]]
    """In words, what a refresh found that is not as it was left."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        account: pulumi.Input[str],
        gpus: pulumi.Input[int],
        docker: pulumi.Input[str],
        container_toolkit: pulumi.Input[str],
        sudo: pulumi.Input[bool] = True,
        ports: pulumi.Input[Sequence[int]] = (),
        probe_image: pulumi.Input[str] = DEFAULT_PROBE_IMAGE,
        remove_data: pulumi.Input[bool] = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(
            name,
            {
                "connection": connection,
                "account": account,
                "gpus": gpus,
                "docker": docker,
                "container_toolkit": container_toolkit,
                "sudo": sudo,
                "ports": ports,
                "probe_image": probe_image,
                "remove_data": remove_data,
                "facts": None,
                "gpu_uuids": None,
                "drift": None,
            },
            opts,
        )
