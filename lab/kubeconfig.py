"""Kubeconfigs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(
    cluster: Mapping[str, Any],
    user: Mapping[str, Any],
    *,
    name: str = "lab",
    client: str = "lab",
    namespace: str = "",
) -> str:
    """One cluster and one user. JSON is YAML, and has one way to write a thing: a rewrite changes no byte."""
    context = {"cluster": name, "user": client} | ({"namespace": namespace} if namespace else {})
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name,
    }
    return json.dumps(document, indent=2) + "\n"


def of_node(url: str, authority: Path, certificate: Path, **cluster: str) -> str:
    """Of a program of a node, whose key lies beside its certificate."""
    user = {
        "client-certificate": str(certificate),
        "client-key": str(certificate.with_suffix(".key")),
    }
    return kubeconfig({"server": url, "certificate-authority": str(authority), **cluster}, user)


def of_lab(lab: Path, server: str, *, name: str, client: str) -> str:
    """What a distribution writes: the way to the lab's own API server, where there is one."""
    known = lab / "kubeconfig"
    if not known.exists():
        return kubeconfig({"server": server}, {"token": "made up"}, name=name, client=client)
    body = yaml.safe_load(known.read_text())
    cluster, user = body["clusters"][0]["cluster"], body["users"][0]["user"]
    return kubeconfig(cluster, user, name=name, client=client)
