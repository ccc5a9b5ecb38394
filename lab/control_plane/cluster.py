"""What the lab keeps in the cluster: kinds of Cilium, and the rights of its stand-ins."""

from typing import Any

from lab.control_plane.kube import KubeApi
from lab.control_plane.objects import STAND_IN_LABEL, stand_ins

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install_stand_ins(api: KubeApi) -> None:
    for manifest in stand_ins():
        api.apply(manifest)


def stand_ins_served(api: KubeApi) -> bool:
    """Whether the API server serves the stand-in kinds and describes them."""
    found = api.get(f"{_CRDS}?labelSelector={STAND_IN_LABEL}%3Dtrue")["items"]
    expected = sum(manifest["kind"] == "CustomResourceDefinition" for manifest in stand_ins())
    if len(found) < expected or not all(_is_established(crd) for crd in found):
        return False
    return {f"apis/{crd['spec']['group']}/v2" for crd in found} <= set(
        api.get("/openapi/v3")["paths"]
    )


def accepts_pods(api: KubeApi) -> bool:
    """Whether the namespace `default` has its service account, without which no pod is accepted."""
    status, _ = api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    return status == 200


def _is_established(manifest: dict[str, Any]) -> bool:
    # Null as long as the API server has not looked at the definition.
    conditions = manifest.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
