"""How a cluster and its machines are reached: by the lab, the configuration, or the state."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gpuclusters.cli import doctor_stack, files
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project, open_session
from gpuclusters.config import usernetes_plan
from gpuclusters.config.cluster import ClusterConfig, uses_lab
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.inventory import (
    Inventory,
    InventoryError,
    ResolvedHost,
    read_inventory,
    resolve_machines,
)
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.drift.hosts import connections
from gpuclusters.host.connect import SshCredentials, find_credentials
from gpuclusters.host.model import HostConnection


def lab_inventory(project: Project) -> Inventory:
    """What the running lab offers."""
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


def connection(machine: ResolvedHost) -> HostConnection:
    """How a machine is reached."""
    return HostConnection(
        host=machine.name,
        address=machine.address,
        port=machine.port,
        user=machine.user,
        host_key=machine.host_key,
    )


def reach(
    project: Project, stack: str, config: UsernetesConfig
) -> tuple[Mapping[str, HostConnection], SshCredentials]:
    """A connection for each machine by name, and the key for them."""
    names = usernetes_plan.machine_names(config)
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
    try:
        found = resolve_machines(names, config.hosts, inventory)
    except InventoryError as error:
        raise UsageError(str(error)) from error
    return {name: connection(host) for name, host in found.items() if host}, credentials
