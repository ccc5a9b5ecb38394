"""`doctor`: the machines of a cluster that exist already, or are simulated: all of them in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuclusters.cli import doctor_workstation as workstation
from gpuclusters.cli.diagnosis import Diagnosis, failure, unreachable, well
from gpuclusters.cli.doctor_hosts import CREDENTIALS
from gpuclusters.cli.doctor_stack import StackSecrets
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.hosts import ExistingHosts, LabHosts
from gpuclusters.config.inventory import Inventory, InventoryError, ResolvedHost, resolve_machines
from gpuclusters.core.errors import AdapterError
from gpuclusters.host.connect import SshCredentials, find_credentials
from gpuclusters.host.model import HostConnection

_AT_ONCE = 16

Look = Callable[[ResolvedHost, SshCredentials], list[Diagnosis]]


def examine(
    hosts: ExistingHosts | LabHosts | GcpHosts,
    names: Sequence[str],
    inventory: Inventory | None,
    secrets: StackSecrets,
    look: Look,
) -> Iterator[Diagnosis]:
    """Look at each; those on Google Cloud are known to the state alone."""
    if not isinstance(hosts, ExistingHosts | LabHosts):
        yield well(workstation.LAB, "the machines are made by the stack; see its outputs")
        return
    key, source = secrets.values.get("ssh-private-key"), ""
    if isinstance(hosts, LabHosts):
        if inventory is None:
            return  # the lab does not run, which was said
        key, source = inventory.ssh_private_key.read_text(encoding="utf-8"), "the lab"
    elif not secrets.readable:
        return
    try:
        resolved = resolve_machines(names, hosts, inventory)
        credentials = find_credentials(key)
        credentials.keys()
    except InventoryError as error:
        yield failure(workstation.LAB, str(error), "`gpu-clusters lab start`", error.error_id)
        return
    except AdapterError as error:
        yield unreachable(CREDENTIALS, error)
        return
    yield well(CREDENTIALS, f"SSH key from {source or credentials.source}")
    found = [host for host in resolved.values() if host is not None]
    with ThreadPoolExecutor(max(1, min(len(found), _AT_ONCE))) as pool:
        for diagnoses in pool.map(lambda host: look(host, credentials), found):
            yield from diagnoses


def connection(machine: ResolvedHost) -> HostConnection:
    """How a machine is reached."""
    return HostConnection(
        host=machine.name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        host_key=machine.host_key,
    )
