"""How kubectl and this program log in to a cluster of Google's: with a token that is asked for each time."""

from typing import Any

import yaml

PROGRAM = "gpu-clusters"
"""As a kubeconfig of this program's calls it for a token."""
COMMAND = "google-token"
API_VERSION = "client.authentication.k8s.io/v1"


def render(cluster: str, endpoint: str, authority: str, impersonate: str = "") -> str:
    """A kubeconfig without any secret; `authority`: certificate in base64, as Google tells it.

    The token comes from `gpu-clusters google-token`, which is of this program's own release. Google's
    gke-gcloud-auth-plugin would be whichever one has installed; a client certificate is an administrator
    until the cluster goes.
    """
    program: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "command": PROGRAM,
        "args": [COMMAND, *(["--impersonate", impersonate] if impersonate else [])],
        "interactiveMode": "Never",
        "installHint": "pip install gpu-clusters, and have it on PATH",
    }
    server = {"server": f"https://{endpoint}", "certificate-authority-data": authority}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": server}],
        "users": [{"name": cluster, "user": {"exec": program}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        "current-context": cluster,
    }
    return yaml.safe_dump(document, sort_keys=False)


def credential(token: str, expires: str) -> dict[str, Any]:
    """What the command prints; `expires`: RFC 3339, from when on it is asked for another."""
    status = {"token": token, "expirationTimestamp": expires}
    return {"apiVersion": API_VERSION, "kind": "ExecCredential", "status": status}
