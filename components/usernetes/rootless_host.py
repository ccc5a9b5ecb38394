"""One host of a Usernetes cluster, before the cluster: NVIDIA's driver, and rootless Docker with its GPUs.

Owns: the driver of the host where it is ours, packages, files, account settings, the account's daemon.
Deliberately does not own: the machine, the node that runs in the daemon, the account's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.host_connection import HostConnection
from components.kubernetes_objects import after
from gpuclusters.compat.usernetes_versions import VersionSet
from gpuclusters.driver.model import WantedDriver
from gpuclusters.driver.resource import GpuDriver
from gpuclusters.rootless.resource import RootlessHost as PreparedHost


@dataclass(frozen=True, kw_only=True, slots=True)
class RootlessHostArgs:
    """What one host is."""

    connection: HostConnection
    account: str
    """Whom the daemon and all containers belong to."""
    gpus: int
    driver: WantedDriver | None
    """None: the host has one, and it is checked alone."""
    versions: VersionSet
    sudo: bool
    """False: an administrator prepares the host; what is missing is said with its commands."""
    ports: Sequence[int] = ()
    """TCP ports that its node publishes."""
    remove_data: bool = False
    """Whether a removal deletes the account's images and volumes too."""


class RootlessHost(pulumi.ComponentResource):
    """Resources `<host>-driver`, where the driver is ours, and `<host>-rootless`."""

    facts: pulumi.Output[Mapping[str, Any]]
    """`uid`, `home`, `runtime_directory`, `docker_host`, and the versions that run."""

    def __init__(
        self, name: str, args: RootlessHostArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Refused: a driver to be installed on a host that an administrator prepares."""
        super().__init__("gpu-clusters:usernetes:RootlessHost", name, None, opts)
        host, child = args.connection.host, pulumi.ResourceOptions(parent=self)
        wanted, driver = args.driver, None
        if wanted is not None:
            if not args.sudo:
                raise pulumi.RunError(
                    f"{host}: an administrator prepares it, so that its driver is installed already; write "
                    "driver.source: installed"
                )
            driver = GpuDriver(
                f"{host}-driver",
                connection=args.connection.as_input(),
                gpus=args.gpus,
                opts=child,
                **wanted.inputs(),
            )
        prepared = PreparedHost(
            f"{host}-rootless",
            connection=args.connection.as_input(),
            account=args.account,
            gpus=args.gpus,
            docker=args.versions.docker,
            container_toolkit=args.versions.container_toolkit,
            sudo=args.sudo,
            ports=sorted(args.ports),
            # The node is built from it, so that it is pulled anyway, and it is pinned.
            probe_image=args.versions.node_image,
            remove_data=args.remove_data,
            opts=after(driver, opts=child),
        )
        self.facts = prepared.facts
        self.register_outputs({"facts": self.facts, "gpu_uuids": prepared.gpu_uuids})
