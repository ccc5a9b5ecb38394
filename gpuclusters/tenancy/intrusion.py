"""What a hostile tenant would try, and what must come of it: each attempt is refused.

Attempts are data; an adapter carries them out. By the rights of the tenant's own account, by pods that the
cluster must not accept even from somebody who may create pods, by short cuts in a lease, and through the API.
The list of pods follows the benchmark of the Kubernetes multi-tenancy working group and the doors out of a
Kata VM: annotations, runtime class, choice of node.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuclusters.container_api.container import LEASE_ANNOTATION
from gpuclusters.tenancy.isolation import PULL_SECRET

Pod = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """Something that a tenant's account must not be allowed to do."""

    name: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    object_name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class PodAttempt:
    """A pod that the cluster must refuse in a tenant's namespace, whoever sends it."""

    name: str
    pod: Pod


def accesses(own: str, other: str, controllers: str) -> tuple[Access, ...]:
    """What the account of namespace `own` must not do.

    Args:
        own: the tenant's namespace.
        other: another tenant's namespace.
        controllers: namespace of the controllers.
    """
    ours = "gpu-clusters.dev"
    return (
        Access("read the pods of another tenant", "list", "", "pods", other),
        Access("read the secrets of another tenant", "list", "", "secrets", other),
        Access("read the logs of another tenant", "get", "", "pods", other, subresource="log"),
        Access(
            "run commands in containers of another tenant", "create", "", "pods", other,
            subresource="exec",
        ),
        Access("create pods at another tenant", "create", "", "pods", other),
        Access("read the keys of the controllers", "get", "", "secrets", controllers, "controllers"),
        Access("become the controllers", "create", "", "serviceaccounts", controllers, "controllers",
               subresource="token"),
        Access("read leases", "list", ours, "gpuleases"),
        Access("take a GPU by writing a lease", "patch", ours, "gpuleases", subresource="status"),
        Access("read tenancies", "list", ours, "tenancies"),
        Access("raise its own share", "patch", ours, "tenancies"),
        Access("raise its own quota", "patch", "", "resourcequotas", own),
        Access("open its own network", "create", "cilium.io", "ciliumnetworkpolicies", own),
        Access("delete its own isolation", "delete", "cilium.io", "ciliumnetworkpolicies", own),
        Access("relabel its own namespace", "patch", "", "namespaces", object_name=own),
        Access("start a container in a running VM", "patch", "", "pods", own,
               subresource="ephemeralcontainers"),
        Access("make its own VM larger", "patch", "", "pods", own, subresource="resize"),
        Access("read nodes", "list", "", "nodes"),
        Access("change nodes", "patch", "", "nodes"),
        Access("bind roles", "create", "rbac.authorization.k8s.io", "rolebindings", own),
        Access("act as somebody else", "impersonate", "", "users"),
        Access(
            "switch the pod policy off", "patch", "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings",
        ),
    )  # fmt: skip


def forbidden_pods(sound: Pod, *, node: str, gpu_resource: str) -> tuple[PodAttempt, ...]:
    """Every way out of the VM that a pod's specification offers, each as one change to a sound pod."""
    return tuple(PodAttempt(name, pod) for name, pod in _variants(sound, node, gpu_resource))


def _variants(sound: Pod, node: str, resource: str) -> Iterator[tuple[str, Pod]]:
    def with_spec(**changes: Any) -> Pod:
        pod = copy.deepcopy(sound)
        pod["spec"] |= changes
        return pod

    def with_container(**changes: Any) -> Pod:
        pod = copy.deepcopy(sound)
        pod["spec"]["containers"][0] |= changes
        return pod

    def with_annotation(key: str, value: str) -> Pod:
        pod = copy.deepcopy(sound)
        pod["metadata"].setdefault("annotations", {})[key] = value
        return pod

    def without(key: str) -> Pod:
        pod = copy.deepcopy(sound)
        pod["spec"].pop(key, None)
        return pod

    def asking_for(gpus: str) -> Pod:
        amounts = dict(sound["spec"]["containers"][0]["resources"]["limits"]) | {resource: gpus}
        return with_container(resources={"requests": dict(amounts), "limits": dict(amounts)})

    yield "a pod with GPUs and without a lease", without("schedulingGates")
    yield (
        "a pod that names a lease by itself",
        with_annotation(LEASE_ANNOTATION, f"{node}/0"),
    )
    yield "three GPUs", asking_for("3")
    yield "a container without a VM", without("runtimeClassName")
    yield "the host's network", with_spec(hostNetwork=True)
    yield "the host's processes", with_spec(hostPID=True)
    yield "the host's shared memory", with_spec(hostIPC=True)
    yield (
        "a folder of the host",
        with_spec(volumes=[{"name": "root", "hostPath": {"path": "/"}}]),
    )
    yield (
        "a privileged container",
        with_container(securityContext={"privileged": True}),
    )
    yield (
        "a port of the host",
        with_container(ports=[{"containerPort": 80, "hostPort": 6666}]),
    )
    yield (
        "capabilities",
        with_container(
            securityContext={
                "capabilities": {"add": ["SYS_ADMIN"]},
                "allowPrivilegeEscalation": True,
            }
        ),
    )
    yield from _in_the_container(with_container, with_spec)
    yield from _of_others(with_spec, with_annotation)
    yield "a node of its own choice", with_spec(nodeName=node)
    yield (
        "a selector of nodes",
        with_spec(nodeSelector={"kubernetes.io/hostname": node}),
    )
    yield "a toleration of every taint", with_spec(tolerations=[{"operator": "Exists"}])
    yield "another scheduler", with_spec(schedulerName="mine")
    yield "a priority above others", with_spec(priorityClassName="system-node-critical")
    yield "a token of the API server", with_spec(automountServiceAccountToken=True)
    yield (
        "a changed kernel of the VM",
        with_annotation("io.katacontainers.config.hypervisor.kernel_params", "init=/bin/sh"),
    )
    yield (
        "a device by its CDI name",
        with_annotation("cdi.k8s.io/steal", f"{resource}=1"),
    )


_Changed = Callable[..., Pod]


def _in_the_container(with_container: _Changed, with_spec: _Changed) -> Iterator[tuple[str, Pod]]:
    """What a container could have beside its own GPUs, and have done from the machine's network."""
    machine = {"httpGet": {"host": "192.0.2.1", "port": 443}}
    for resource in ("nvidia.com/gpu", "nvidia.com/mig-1g.10gb"):
        amounts = {"requests": {resource: "1"}, "limits": {resource: "1"}}
        yield f"a GPU as {resource}", with_container(resources=amounts)
    yield "a probe from the machine's network", with_container(startupProbe=machine)
    yield "a hook from the machine's network", with_container(lifecycle={"postStart": machine})
    yield (
        "an image that the machine has from another",
        with_container(imagePullPolicy="IfNotPresent"),
    )
    for name, where in (
        ("an image from an address", "192.0.2.1:443/redfish:1"),
        ("an image from the machine itself", "localhost:5000/image:1"),
        ("an image from a cluster's own name", "registry.kube-system.svc.cluster.local/image:1"),
    ):
        yield name, with_container(image=where)
    secret = {"secretKeyRef": {"name": PULL_SECRET, "key": ".dockerconfigjson"}}
    yield (
        "the credentials of its registry as a variable",
        with_container(env=[{"name": "CREDENTIALS", "valueFrom": secret}]),
    )
    claim = [{"name": "gpu", "resourceClaimName": "gpu"}]
    yield "a device by a resource claim", with_spec(resourceClaims=claim)


def _of_others(with_spec: _Changed, with_annotation: _Changed) -> Iterator[tuple[str, Pod]]:
    """Volumes, networks and neighbours that are not its own."""
    token = {"serviceAccountToken": {"path": "token"}}
    for name, volume in (
        ("a token of the API server as a volume", {"projected": {"sources": [token]}}),
        ("the credentials of its registry as a volume", {"secret": {"secretName": PULL_SECRET}}),
        ("a volume of any CSI driver", {"csi": {"driver": "nfs.csi.k8s.io"}}),
        ("a disk without a limit", {"emptyDir": {}}),
    ):
        yield name, with_spec(volumes=[{"name": "mine", **volume}])
    beside = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {},
        "namespaceSelector": {},
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    yield "a place beside another tenant's pods", with_spec(affinity=affinity)
    for name, key in (
        ("a second network", "k8s.v1.cni.cncf.io/networks"),
        ("a device by an annotation for NRI", "devices.nri.io/pod"),
        ("a device by an annotation for CRI-O", "io.kubernetes.cri-o.Devices"),
    ):
        yield name, with_annotation(key, "/dev/mem")


@dataclass(frozen=True, slots=True)
class LeaseAttempt:
    """A change of a lease's status that the API server itself must refuse, even from the controllers."""

    name: str
    status: Mapping[str, Any]


def forbidden_lease_changes(lease: Mapping[str, Any]) -> tuple[LeaseAttempt, ...]:
    """Short cuts around reset, clearing and verification, from where the lease is now."""
    phase = (lease.get("status") or {}).get("phase")
    targets = {"Free": "Leased", "Leased": "Free", "Quarantined": "Free"}
    target = targets.get(str(phase), "Free")
    return (LeaseAttempt(f"a GPU from {phase} straight to {target}", {"phase": target}),)
