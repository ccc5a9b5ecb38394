"""The pod of one of the cluster's own programs: image, entry point, settings, probes, least rights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from components.caas.system import SETTINGS_KEY, Home, System
from gpuclusters.tenancy.programs import Program

_SETTINGS_FOLDER = "/etc/gpu-clusters"
_SECRETS_FOLDER = "/etc/gpu-clusters-secrets"
_TLS_FOLDER = "/etc/gpu-clusters-tls"
_SCRATCH_FOLDER = "/tmp"  # noqa: S108 - an emptyDir of the pod
_START_SECONDS = 120
"""How long a program may take until it answers for the first time."""

METRICS = "metrics"
"""Name of the port for probes and metrics."""
SERVES = "serves"
"""Name of the port for callers."""
LABEL = "app.kubernetes.io/name"
PART_OF = {"app.kubernetes.io/part-of": "gpu-clusters"}
"""Label of everything that belongs to the cluster's programs."""


@dataclass(frozen=True, kw_only=True)
class HostFolder:
    """A folder of the host that a program has to reach."""

    name: str
    path: str
    variable: str
    """Environment variable by which the program is told where it is."""
    socket: str = ""
    """The file in it that the variable names; by default the folder itself."""


@dataclass(frozen=True, kw_only=True)
class ProgramArgs:
    """One program."""

    program: Program
    """Its module is `caas.<program>` with `_` for `-`."""
    image: str
    port: int
    """Where it answers kubelets and monitoring: probes and metrics."""
    serves: int | None = None
    """Where it answers those it is there for, if it is a server."""
    system: System
    certificate: pulumi.Input[str] | None = None
    """Name of a Secret with the certificate that it shows; None: it serves plain HTTP."""
    image_pull_secret: str | None = None
    reads_secrets: bool = False
    host_folders: Sequence[HostFolder] = ()
    """Mounted at the same path; a program that needs one runs as root."""
    cpu: str = "100m"
    memory: str = "256Mi"
    """Request and limit."""
    disk: str = "256Mi"
    """Request and limit of what it writes, its log included."""

    @property
    def home(self) -> Home:
        """Where it lives."""
        return self.system.homes[self.program]


def labels(program: Program) -> dict[str, str]:
    """By which the program's pods are found."""
    return {LABEL: f"gpu-clusters-{program}"}


def pod_template(args: ProgramArgs) -> dict[str, Any]:
    """The pod template of a Deployment or DaemonSet."""
    environment = {
        "GPU_CLUSTERS_SETTINGS": {"value": f"{_SETTINGS_FOLDER}/{SETTINGS_KEY}"},
        **_field("POD_IP", "status.podIP"),
        **_field("POD_NAME", "metadata.name"),
        **_field("NODE_NAME", "spec.nodeName"),
    }
    mounts = [
        {"name": "settings", "mount_path": _SETTINGS_FOLDER, "read_only": True},
        {"name": "scratch", "mount_path": _SCRATCH_FOLDER},
    ]
    volumes: list[dict[str, Any]] = [
        {"name": "settings", "config_map": {"name": args.home.settings}},
        {"name": "scratch", "empty_dir": {"size_limit": args.disk}},
    ]
    if args.reads_secrets:
        environment["GPU_CLUSTERS_SECRETS"] = {"value": _SECRETS_FOLDER}
        mounts.append({"name": "secrets", "mount_path": _SECRETS_FOLDER, "read_only": True})
        # Readable for the pod's group: the program is not root.
        secret = {"secret_name": args.system.secrets, "default_mode": 0o440}
        volumes.append({"name": "secrets", "secret": secret})
    if args.certificate is not None:
        environment["GPU_CLUSTERS_API_TLS"] = {"value": _TLS_FOLDER}
        mounts.append({"name": "tls", "mount_path": _TLS_FOLDER, "read_only": True})
        # The whole folder and no single files: only so it changes when the certificate is renewed.
        secret = {"secret_name": args.certificate, "default_mode": 0o440}
        volumes.append({"name": "tls", "secret": secret})
    for folder in args.host_folders:
        where = f"{folder.path}/{folder.socket}" if folder.socket else folder.path
        environment[folder.variable] = {"value": where}
        mounts.append({"name": folder.name, "mount_path": folder.path})
        volumes.append(
            {"name": folder.name, "host_path": {"path": folder.path, "type": "Directory"}}
        )
    container = {
        "name": args.program.value,
        "image": args.image,
        "command": ["python", "-m", f"caas.{args.program.replace('-', '_')}"],
        "env": [{"name": name, **source} for name, source in environment.items()],
        "ports": [
            {"name": METRICS, "container_port": args.port},
            *([{"name": SERVES, "container_port": args.serves}] if args.serves else []),
        ],
        "volume_mounts": mounts,
        "resources": {
            "requests": {"cpu": args.cpu, "memory": args.memory, "ephemeral-storage": args.disk},
            "limits": {"memory": args.memory, "ephemeral-storage": args.disk},
        },
        # On a busy machine a start takes longer than liveness waits, which would kill it again and again.
        "startup_probe": _probe("/healthz", period=2, failures=_START_SECONDS // 2),
        "readiness_probe": _probe("/readyz", period=2),
        "liveness_probe": _probe("/healthz", period=10),
        "security_context": {
            "allow_privilege_escalation": False,
            "read_only_root_filesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "metadata": {
            "labels": {**labels(args.program), **PART_OF},
            "annotations": {"gpu-clusters.dev/settings": args.system.settings_digest},
        },
        "spec": {
            "service_account_name": args.home.account,
            "containers": [container],
            "volumes": volumes,
            "security_context": _user(root=bool(args.host_folders)),
            "priority_class_name": "system-cluster-critical",
            **(
                {"image_pull_secrets": [{"name": args.image_pull_secret}]}
                if args.image_pull_secret
                else {}
            ),
        },
    }


def granted(args: ProgramArgs, parent: pulumi.Resource) -> pulumi.ResourceOptions:
    """Options by which the program starts after it may do what it has to."""
    return pulumi.ResourceOptions(parent=parent, depends_on=args.system.permissions)


def _field(name: str, path: str) -> Mapping[str, Any]:
    return {name: {"value_from": {"field_ref": {"field_path": path}}}}


def _probe(path: str, *, period: int, failures: int = 3) -> Mapping[str, Any]:
    return {
        "http_get": {"path": path, "port": METRICS},
        "period_seconds": period,
        "timeout_seconds": 2,
        "failure_threshold": failures,
    }


def _user(*, root: bool) -> Mapping[str, Any]:
    seccomp = {"seccomp_profile": {"type": "RuntimeDefault"}}
    if root:
        return {"run_as_user": 0, **seccomp}
    return {"run_as_non_root": True, "run_as_user": 65532, "fs_group": 65532, **seccomp}
