"""A tunnel to the API of a cluster, held open by a stack's program for as long as it runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pulumi

from gpuclusters.host.model import HostConnection

_OPEN = ExitStack()
"""Tunnels of this program; they end with its process."""


def hold(
    connection: Mapping[str, Any],
    private_key: object,
    *,
    local_port: int,
    remote_port: int,
) -> None:
    """Open it for the rest of the program.

    A port that is taken is that of `gpu-clusters tunnel`, or of somebody whose certificate the kubeconfig
    refuses. A tunnel that cannot be opened is a warning: it may be a preview, and what needs the API says so.
    """
    # Imported late: what reaches hosts takes half a second to load, and few programs need it.
    from gpuclusters.core.errors import AdapterError, BusyError
    from gpuclusters.host import forward as ssh_forward
    from gpuclusters.host.connect import find_credentials

    stated = {key: value for key, value in connection.items() if value is not None}
    stated["port"] = int(stated["port"])  # the engine's numbers are floats
    try:
        tunnel = ssh_forward.forward(
            HostConnection.model_validate(stated),
            find_credentials(private_key),
            local_port=local_port,
            remote_port=remote_port,
        )
        _OPEN.enter_context(tunnel)
    except BusyError:
        pulumi.log.debug(f"127.0.0.1:{local_port} is open already")
    except AdapterError as error:
        pulumi.log.warn(str(error))
