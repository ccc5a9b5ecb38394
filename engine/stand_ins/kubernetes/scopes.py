"""Whether a kind lives in namespaces, also where the API server cannot say so (yet)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from engine.stand_ins.kubernetes.client import Api, ApiResource, Unreachable
from engine.stand_ins.kubernetes.objects import GroupVersionKind

# Cluster-scoped kinds of Kubernetes itself, for previews without a cluster (API reference, v1.34).
_CLUSTER_SCOPED: Final = frozenset(
    {
        ("", "Namespace"),
        ("", "Node"),
        ("", "PersistentVolume"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("certificates.k8s.io", "CertificateSigningRequest"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
        ("networking.k8s.io", "IngressClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("rbac.authorization.k8s.io", "ClusterRole"),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
        ("resource.k8s.io", "DeviceClass"),
        ("resource.k8s.io", "ResourceSlice"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "CSIDriver"),
        ("storage.k8s.io", "CSINode"),
        ("storage.k8s.io", "StorageClass"),
        ("storage.k8s.io", "VolumeAttachment"),
    }
)


class Scopes:
    """Scopes of kinds: what the server says, else what the program defines, else Kubernetes' own list."""

    def __init__(self) -> None:
        self._planned: dict[tuple[str, str], bool] = {}
        self._lock = threading.Lock()

    def plan(self, definition: Mapping[str, Any]) -> None:
        """Remember a CustomResourceDefinition of the program that may not be in the cluster yet."""
        spec = definition.get("spec")
        names = spec.get("names") if isinstance(spec, Mapping) else None
        if not isinstance(spec, Mapping) or not isinstance(names, Mapping):
            return  # not known in this preview
        with self._lock:
            key = (str(spec.get("group")), str(names.get("kind")))
            self._planned[key] = spec.get("scope") == "Namespaced"

    def namespaced(self, kind: GroupVersionKind, api: Api | None) -> bool:
        """Whether objects of `kind` live in namespaces; unknown kinds are taken to."""
        key = (kind.group, kind.kind)
        if key in _CLUSTER_SCOPED:
            return False
        found = find(kind, api)
        if found is not None:
            return found.namespaced
        return self._planned.get(key, True)


def find(kind: GroupVersionKind, api: Api | None) -> ApiResource | None:
    """Where a kind lives; None without a cluster, or if the cluster does not know it."""
    try:
        return api.find(kind) if api is not None else None
    except Unreachable:
        return None
