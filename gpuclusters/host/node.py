"""A node as kubectl shows it, and what clusters on hosts of ours have in common. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml

from gpuclusters.core.finding import Finding, blocked

DRAINED = "gpu-clusters.dev/drained-for"
"""Annotation of a node that was closed by us, so that a later run opens it again."""
LONGEST_CLOCK_DIFFERENCE_SECONDS = 30
"""More, and certificates that a control plane has just made are not valid yet on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    ready: bool
    reason: str = ""
    """What its condition Ready says."""
    version: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    taints: frozenset[str] = frozenset()
    """As `key=value:effect`."""
    external_ips: tuple[str, ...] = ()

    @property
    def drained_for(self) -> str:
        """Why we closed it; empty if we did not."""
        return self.annotations.get(DRAINED, "")

    def has_taint(self, key: str) -> bool:
        return any(taint.startswith(f"{key}=") for taint in self.taints)


def parse_node(body: Mapping[str, Any]) -> ClusterNode:
    """A Node as `kubectl get -o json` prints it; KeyError if it is none."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    conditions = {one["type"]: one for one in status.get("conditions", ())}
    ready: Mapping[str, Any] = conditions.get("Ready", {})
    addresses = status.get("addresses", ())
    return ClusterNode(
        ready=ready.get("status") == "True",
        reason=str(ready.get("message", "")),
        version=status.get("nodeInfo", {}).get("kubeletVersion", ""),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
        taints=frozenset(
            f"{one['key']}={one.get('value', '')}:{one['effect']}"
            for one in spec.get("taints") or ()
        ),
        external_ips=tuple(one["address"] for one in addresses if one["type"] == "ExternalIP"),
    )


def clocks(area: str, host: int, servers: int) -> Iterator[Finding]:
    """Whether a host and the control plane that it joins have the same time."""
    difference = abs(host - servers)
    if difference > LONGEST_CLOCK_DIFFERENCE_SECONDS:
        yield blocked(f"{area}.clock", difference=difference)


def name_taken(code: str, cluster: str, name: str, node: ClusterNode) -> Finding:
    """The cluster has a node of this name that the host is not."""
    state = "Ready" if node.ready else "not Ready"
    return blocked(code, cluster=cluster, name=name, state=state)


def readdressed(
    kubeconfig: str, *, name: str, host: str, port: str | None = None, tls_name: str = ""
) -> str:
    """A control plane's admin kubeconfig as others can use it; ValueError unless it has exactly one cluster.

    `name` is that of cluster, user and context, `tls_name` what its certificate is for, where `host` is none
    of its names; without `port` that of the kubeconfig stays.
    """
    body = yaml.safe_load(kubeconfig)
    try:
        (cluster,), (user,), (context,) = body["clusters"], body["users"], body["contexts"]
        stated = cluster["cluster"]
        parts = urlsplit(stated["server"])
        shown = f"[{host}]" if ":" in host else host
        address = f"{shown}:{port or parts.port or 443}"
        stated["server"] = urlunsplit(parts._replace(netloc=address, path=""))
        if tls_name:
            stated["tls-server-name"] = tls_name
        cluster["name"] = user["name"] = context["name"] = name
        context["context"] = {**context["context"], "cluster": name, "user": name}
        body["current-context"] = name
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("it is not a kubeconfig with one cluster") from error
    return yaml.safe_dump(body, sort_keys=False)
