"""The way to an API that is reached through SSH, while a stack's program runs.

With `api.through: tunnel` the kubeconfig leads to a port of this computer. Whatever a stack has in the
cluster needs that port during `up`, the first one too, when no cluster is there yet that a tunnel could be
opened to before. The program lives as long as the engine has anything to create for it, so that it holds the
tunnel. `refresh` and `destroy` run no program: there `gpu-clusters tunnel` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pulumi

from components.host_connection import HostConnection
from gpuclusters.usernetes import api_tunnel
from gpuclusters.usernetes.addresses import ApiAccess


def open_api_tunnel(
    kubeconfig: pulumi.Output[str],
    *,
    access: ApiAccess,
    host: HostConnection,
    private_key: pulumi.Input[str] | None,
    remote_port: int,
) -> pulumi.Output[str]:
    """The kubeconfig, known when its API is reached."""
    if access.through != "tunnel" or access.local_port is None:
        return kubeconfig
    local_port = access.local_port

    async def open_first(values: Mapping[str, Any]) -> Any:
        if values["kubeconfig"]:
            await asyncio.to_thread(
                api_tunnel.hold,
                values["connection"],
                values["private_key"],
                local_port=local_port,
                remote_port=remote_port,
            )
        return values["kubeconfig"]

    found = pulumi.Output.all(
        kubeconfig=kubeconfig, private_key=private_key, connection=host.as_input()
    )
    return pulumi.Output.secret(found.apply(open_first))
