"""How the machines of a configuration are reached, as components take it."""

from __future__ import annotations

from components.host_connection import HostConnection
from gpuclusters.config.secrets import HostEndpoint


def connection(name: str, machine: HostEndpoint) -> HostConnection:
    """One machine of the configuration or of the lab."""
    return HostConnection(
        host=name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        host_key=machine.host_key,
    )
