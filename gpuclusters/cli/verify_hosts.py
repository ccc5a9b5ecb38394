"""How `verify` reaches the machines of a usernetes cluster, wherever they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuclusters.cli import doctor_stack, files
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.project import Project, open_session
from gpuclusters.config import usernetes_plan
from gpuclusters.config.cluster import uses_lab
from gpuclusters.config.gcp import GcpHosts
from gpuclusters.config.inventory import (
    Inventory,
    InventoryError,
    ResolvedHost,
    read_inventory,
    resolve_machines,
)
from gpuclusters.config.usernetes import UsernetesConfig
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


def reach(
    project: Project, stack: str, config: UsernetesConfig
) -> tuple[Mapping[str, HostConnection], SshCredentials]:
    """A connection for each machine by name, and the key for them."""
    if uses_lab(config):
        key: str | None = lab_inventory(project).ssh_private_key.read_text(encoding="utf-8")
        env: Mapping[str, str] | None = None
    else:
        session = open_session(project, stack)
        known, _ = doctor_stack.secrets(session)
        key, env = known.values.get("ssh-private-key"), session.env
    credentials = find_credentials(key) if env is None else find_credentials(key, env)
    credentials.keys()
    if isinstance(config.hosts, GcpHosts):
        return _of_state(project, stack, config), credentials
    inventory = lab_inventory(project) if uses_lab(config) else None
    try:
        found = resolve_machines(usernetes_plan.machine_names(config), config.hosts, inventory)
    except InventoryError as error:
        raise UsageError(str(error)) from error
    return {name: _connection(host) for name, host in found.items() if host}, credentials


def _connection(host: ResolvedHost) -> HostConnection:
    return HostConnection(
        host=host.name,
        address=host.address,
        port=host.port,
        user=host.user,
        host_key=host.host_key,
    )


def _of_state(
    project: Project, stack: str, config: UsernetesConfig
) -> Mapping[str, HostConnection]:
    """Machines that the stack makes: their addresses and keys are in its state alone."""
    exported: Any = open_session(project, stack).read("stack", "export")
    resources = ((exported or {}).get("deployment") or {}).get("resources") or ()
    found = of_resources(resources)
    wanted = usernetes_plan.machine_names(config)
    missing = [name for name in wanted if name not in found]
    if missing:
        raise RunError(
            f"the state of {stack} does not say how {', '.join(missing)} is reached; run `gpu-clusters up`"
        )
    return {name: found[name] for name in wanted}


def of_resources(resources: Any) -> Mapping[str, HostConnection]:
    """The connections in the inputs of a state's resources, by machine."""
    found: dict[str, HostConnection] = {}
    fields = HostConnection.model_fields
    for resource in resources:
        stated = (resource.get("inputs") or {}).get("connection")
        if isinstance(stated, Mapping) and stated.get("host") and stated.get("address"):
            values = {key: value for key, value in stated.items() if key in fields}
            values["port"] = int(float(values.get("port", 22)))
            found[str(stated["host"])] = HostConnection.model_validate(values)
    return found
