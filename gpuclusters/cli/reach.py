"""How a cluster, its machines and the API of its tenants are reached."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from gpuclusters.cli import files
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project, open_session
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig, lab_ends_tls, uses_lab
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.inventory import (
    Inventory,
    InventoryError,
    ResolvedHost,
    read_inventory,
    resolve_machines,
)
from gpuclusters.config.rke2_cluster import FoundCluster
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.core.errors import AdapterError
from gpuclusters.core.ports import holds
from gpuclusters.host.model import HostConnection
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.tenancy.objects import POD

if TYPE_CHECKING:
    from gpuclusters.host.connect import SshCredentials
    from gpuclusters.host.ssh import SshHost

T = TypeVar("T")
_AT_ONCE = 64


def lab_inventory(project: Project) -> Inventory:
    try:
        inventory = read_inventory(project.lab_folder)
    except InventoryError as error:
        raise UsageError(str(error)) from error
    if inventory is None:
        raise UsageError("the lab does not run; start it with `make up`", "lab.not-running")
    return inventory


def admin_kubeconfig(stated: Path | None) -> str:
    """An administrator's kubeconfig: the one that is named, else $KUBECONFIG, else the usual place."""
    path = stated or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    return files.read(path, "the kubeconfig ")


def kubeconfig(project: Project, config: ClusterConfig, stated: Path | None) -> str:
    """The lab's for a cluster that is in it, else an administrator's."""
    if uses_lab(config):
        return lab_inventory(project).kubeconfig.read_text(encoding="utf-8")
    return admin_kubeconfig(stated)


def made_kubeconfig(project: Project, stack: str, stated: Path | None) -> str:
    """The one that is named, else that of the cluster that the stack made, which holds no secret."""
    if stated is not None:
        return admin_kubeconfig(stated)
    outputs = open_session(project, stack).read("stack", "output") or {}
    if not outputs.get("kubeconfig"):
        raise RunError(
            f"the stack {stack} has no cluster yet; run `gpu-clusters up --stack {stack}`"
        )
    return str(outputs["kubeconfig"])


def connection(machine: ResolvedHost) -> HostConnection:
    return HostConnection(
        host=machine.name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        host_key=machine.host_key,
    )


def ask_all(
    machines: Mapping[str, HostConnection],
    credentials: SshCredentials,
    look: Callable[[str, SshHost], T],
) -> Iterator[tuple[str, T | AdapterError]]:
    """What each machine answers, all at once: one that does not answer costs its time-out once."""
    # Who logs in to no machine does not wait for SSH.
    from gpuclusters.host.ssh import SshHost

    def ask(name: str) -> T | AdapterError:
        try:
            return look(name, SshHost(machines[name], credentials, connect_attempts=1))
        except AdapterError as error:
            return error

    with ThreadPoolExecutor(max(1, min(len(machines), _AT_ONCE))) as pool:
        yield from zip(machines, pool.map(ask, machines), strict=True)


def reach(
    project: Project, stack: str, config: ClusterConfig, names: Sequence[str]
) -> tuple[Mapping[str, HostConnection], SshCredentials]:
    """A connection for each of these machines that the cluster has, by name, and the key for them."""
    from gpuclusters.cli import doctor_stack
    from gpuclusters.drift.hosts import connections
    from gpuclusters.host.connect import find_credentials

    if isinstance(config, FoundCluster):
        why = "its cluster was there, and this program logs in to none of its machines"
        raise UsageError(f"the stack {stack} has no machines: {why}", "command.no-machines")
    if uses_lab(config):
        inventory: Inventory | None = lab_inventory(project)
        credentials = find_credentials(lab_inventory(project).ssh_private_key.read_text("utf-8"))
    else:
        session, inventory = open_session(project, stack), None
        known, _ = doctor_stack.secrets(session)
        credentials = find_credentials(known.values.get("ssh-private-key"), session.env)
    credentials.keys()
    if isinstance(config.hosts, GcpHosts):
        # Machines that the stack makes: their addresses and keys are in its state alone.
        exported = open_session(project, stack).read("stack", "export") or {}
        resources = (exported.get("deployment") or {}).get("resources") or ()
        of_state = connections(resource.get("inputs") or {} for resource in resources)
        if missing := [name for name in names if name not in of_state]:
            raise RunError(
                f"the state of {stack} does not say how {', '.join(missing)} is reached; run "
                "`gpu-clusters up`"
            )
        return {name: of_state[name] for name in names}, credentials
    if config.hosts is None:
        raise UsageError("the machines of a gke cluster are Google's, and are not reached by SSH")
    try:
        found = resolve_machines(names, config.hosts, inventory)
    except InventoryError as error:
        raise UsageError(str(error)) from error
    return {name: connection(host) for name, host in found.items() if host}, credentials


_LABEL = ("app.kubernetes.io/name", "gpu-clusters-api")
_PORT = 8080
_SERVICE = "api"
_HOURS = 24


@dataclass(frozen=True, slots=True)
class ApiAddress:
    url: str
    authority: Path | None
    """File with the certificate of the authority that its own is of; None: it speaks plain HTTP."""
    address: str | None = None
    """Where it is, if not where the name in `url` leads to."""


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API is, and a file with a token for each tenant."""

    api: ApiAddress | None
    """None: no copy of the API is ready."""
    tokens: Mapping[str, Path]


def open_access(project: Project, config: CaasConfig) -> Access:
    """Write a token for each tenant, good for a day, and find the API."""
    lab, folder = lab_of(project), project.lab_folder / "tokens"
    folder.mkdir(mode=0o700, exist_ok=True)
    tokens = {tenant.name: folder / tenant.name for tenant in config.tenants}
    for tenant, path in tokens.items():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(lab.token(tenant, _HOURS * 3600))
    return Access(api_address(project, config), tokens)


def container_api(project: Project, config: CaasConfig) -> ContainerApi | None:
    """The API in the lab of a project, to be called; None if no copy of it is ready."""
    found = api_address(project, config)
    if found is None:
        return None
    authority = found.authority.read_text(encoding="utf-8") if found.authority else None
    return ContainerApi(found.url, ca_certificate=authority, address=found.address)


def api_address(project: Project, config: CaasConfig) -> ApiAddress | None:
    """Where the API is in the lab of a project; None if no copy of it is ready."""
    lab = lab_of(project)
    kubeconfig = (project.lab_folder / "kubeconfig").read_text(encoding="utf-8")
    address = _ready_pod(kubeconfig, config)
    if address is None:
        return None
    secure = lab_ends_tls(config)
    authority = lab.authority() if secure else None
    # Each pod has an address of its own, for which no certificate could be.
    process = lab.pod_address(address)
    service = (config.programs.namespace, _SERVICE, 443 if secure else 80)
    port = _PORT if process else lab.entrance(*service)
    scheme = "https" if secure else "http"
    return ApiAddress(f"{scheme}://localhost:{port}", authority, process)


def _ready_pod(kubeconfig: str, config: CaasConfig) -> str | None:
    """The address of a copy that is ready."""
    label, value = _LABEL
    for pod in KubernetesObjects(kubeconfig).list(POD, config.programs.namespace):
        labels = pod["metadata"].get("labels") or {}
        leaves = "deletionTimestamp" in pod["metadata"]
        if labels.get(label) == value and holds(pod, "Ready") and not leaves:
            return str(pod["status"]["podIP"])
    return None
