"""How tenants of a lab reach its API: the address of a pod that is ready, and a token for each tenant."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuclusters.cli.lab_entry import lab_of
from gpuclusters.cli.project import Project
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import lab_ends_tls
from gpuclusters.container_api.client import ContainerApi
from gpuclusters.kube.objects import KubernetesObjects
from gpuclusters.tenancy.objects import POD

_LABEL = ("app.kubernetes.io/name", "gpu-clusters-api")
_PORT = 8080
_SERVICE = "api"
_HOURS = 24


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """How the API in a lab is called."""

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
        conditions = pod.get("status", {}).get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        if labels.get(label) == value and ready and not pod["metadata"].get("deletionTimestamp"):
            return str(pod["status"]["podIP"])
    return None
