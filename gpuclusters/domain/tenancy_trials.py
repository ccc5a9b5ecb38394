"""Pods that are tried on the server as dry runs: what is refused is enforced. None is ever created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuclusters.domain import image
from gpuclusters.domain.tenancy_resource import TenancySpec


def trial_pods(spec: TenancySpec) -> Mapping[str, dict[str, Any]]:
    """The pods to try, by name of the trial; none is ever created."""
    allowed = _pod(spec)
    # Not `privileged: true`: an API server may refuse that by a flag of its own (--allow-privileged),
    # which would prove nothing about the namespace.
    on_host = _pod(spec)
    on_host["spec"] |= {"hostNetwork": True, "hostPID": True}
    without = _pod(spec)
    without["spec"].pop("runtimeClassName", None)
    return {"on_host": on_host, "without_runtime_class": without, "allowed": allowed}


def _pod(spec: TenancySpec) -> dict[str, Any]:
    """A pod that keeps every rule of a tenant, restricted Pod Security included."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "gpu-clusters-proof", "namespace": spec.namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "proof",
                    "image": image.example(spec.images),
                    "imagePullPolicy": "Always",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }
    if spec.runtime_classes:
        pod["spec"]["runtimeClassName"] = spec.runtime_classes[0]
    return pod
