"""The way to an API that is reached through SSH, held open while a stack's program runs.

With `api.through: tunnel` the kubeconfig leads to a port of this computer. Whatever a stack has in the
cluster needs that port during `up`, the first one too, when no cluster is there yet that a tunnel could be
opened to before. The program lives as long as the engine has anything to create for it, so that it holds the
tunnel. `refresh` and `destroy` run no program: there `gpu-clusters tunnel` does.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pulumi

from gpuclusters.host.model import HostConnection
from gpuclusters.usernetes.addresses import ApiAccess

_OPEN = ExitStack()
"""Tunnels of this program; they end with its process."""


def open_first(
    kubeconfig: pulumi.Output[str],
    *,
    access: ApiAccess,
    connection: Mapping[str, pulumi.Input[Any]],
    private_key: pulumi.Input[str] | None,
    remote_port: int,
) -> pulumi.Output[str]:
    """The kubeconfig, known when its API is reached."""
    if access.through != "tunnel" or access.local_port is None:
        return kubeconfig
    ports = {"local_port": access.local_port, "remote_port": remote_port}

    async def opened(values: Mapping[str, Any]) -> Any:
        if values["kubeconfig"]:
            await asyncio.to_thread(hold, values["connection"], values["private_key"], **ports)
        return values["kubeconfig"]

    found = pulumi.Output.all(
        kubeconfig=kubeconfig, private_key=private_key, connection=dict(connection)
    )
    return pulumi.Output.secret(found.apply(opened))


def hold(
    connection: Mapping[str, Any], private_key: object, *, local_port: int, remote_port: int
) -> None:
    """Open it for the rest of the program.

    A port that is taken is that of `gpu-clusters tunnel`, or of somebody whose certificate the kubeconfig
    refuses. A tunnel that cannot be opened is a warning: it may be a preview, and what needs the API says so.
    """
    # Imported late: what reaches hosts takes half a second to load, and few programs need it.
    from gpuclusters.core.errors import AdapterError, BusyError
    from gpuclusters.host import ssh
    from gpuclusters.host.connect import find_credentials

    stated = {key: value for key, value in connection.items() if value is not None}
    stated["port"] = int(stated["port"])  # the engine's numbers are floats
    host, ports = HostConnection.model_validate(stated), {"remote_port": remote_port}
    try:
        credentials = find_credentials(private_key)
        tunnel = ssh.forward(host, credentials, local_port=local_port, **ports)
        _OPEN.enter_context(tunnel)
    except BusyError:
        pulumi.log.debug(f"127.0.0.1:{local_port} is open already")
    except AdapterError as error:
        pulumi.log.warn(str(error))
