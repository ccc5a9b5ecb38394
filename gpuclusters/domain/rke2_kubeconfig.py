"""The kubeconfig that a server writes, as others can use it."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

import yaml


def readdressed(text: str, address: str, *, name: str) -> str:
    """The kubeconfig with the servers' fixed address in place of 127.0.0.1, and the cluster's own name.

    Args:
        text: `/etc/rancher/rke2/rke2.yaml` of a server.
        address: registration address; the port stays as it is.
        name: of cluster, context and user, which RKE2 all calls `default`.

    Raises:
        ValueError: not a kubeconfig with exactly one cluster.
    """
    body = yaml.safe_load(text)
    try:
        (cluster,), (user,), (context,) = body["clusters"], body["users"], body["contexts"]
        parts = urlsplit(cluster["cluster"]["server"])
        host = f"[{address}]" if ":" in address else address
        cluster["cluster"]["server"] = urlunsplit(
            parts._replace(netloc=f"{host}:{parts.port or 443}")
        )
        cluster["name"] = user["name"] = context["name"] = name
        context["context"] = {**context["context"], "cluster": name, "user": name}
        body["current-context"] = name
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("it is not a kubeconfig with one cluster") from error
    return yaml.safe_dump(body, sort_keys=False)
