"""Names of what is made, and which names Kubernetes would refuse or already has a use for.

Source: RFC 1123 as Kubernetes applies it to labels and namespaces.
"""

from __future__ import annotations

import re

LABEL_LENGTH = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

RESERVED_NAMESPACES = frozenset(
    {"default", "kata-system", "gpu-operator", "cilium", "cilium-secrets", "gpu-clusters"}
)
RESERVED_PREFIX = "kube-"


def is_dns_label(text: str) -> bool:
    """Whether Kubernetes takes the text as the name of a namespace."""
    return len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_reserved_namespace(namespace: str) -> bool:
    """Whether the namespace belongs to Kubernetes or to what runs beneath the tenants."""
    return namespace in RESERVED_NAMESPACES or namespace.startswith(RESERVED_PREFIX)


def tenant_namespace(prefix: str, tenant: str) -> str:
    """The namespace of a tenant that names none."""
    return f"{prefix}{tenant}"
