"""The adapters of one host, for the providers that keep something on hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuclusters.host.model import HostConnection

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost


def host(connection: HostConnection, ssh_key: object) -> SshHost:
    """The host, reached with the stack's key, a key file or the agent.

    Raises:
        AdapterError: there is none of the three.
    """
    # Imported late: a program that only declares resources does not need what reaches hosts, and
    # half a second per run is a lot for `pulumi preview`.
    from gpuclusters.host.connect import find_credentials
    from gpuclusters.host.ssh import SshHost

    return SshHost(connection, find_credentials(ssh_key))
