"""Names of what is made, and which names Kubernetes refuses (RFC 1123) or already has a use for."""

import re
from ipaddress import ip_address

LABEL_LENGTH = 63
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_HOST_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_LONGEST_NAME = 253
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")

RESERVED_NAMESPACES = frozenset(
    {"default", "kata-system", "gpu-operator", "cilium", "cilium-secrets", "gpu-clusters"}
)
RESERVED_PREFIX = "kube-"


def kebab(name: str) -> str:
    """A field's name as files write it: with `-` for `_`."""
    return name.replace("_", "-")


def is_dns_label(text: str) -> bool:
    """Whether Kubernetes takes the text as the name of a namespace."""
    return len(text) <= LABEL_LENGTH and _LABEL.fullmatch(text) is not None


def is_dns_name(text: str) -> bool:
    """Whether the text is a name of the DNS: labels that neither begin nor end with `-`, no address."""
    labels = text.removesuffix(".").split(".")
    return (
        len(text) <= _LONGEST_NAME
        and all(_HOST_LABEL.fullmatch(label) for label in labels)
        # A last label of digits alone makes programs read an IPv4 address.
        and not labels[-1].isdigit()
    )


def is_host(text: str) -> bool:
    """Whether the text is an IP address or a DNS name, and nothing that a program takes for an option."""
    try:
        ip_address(text)
    except ValueError:
        return is_dns_name(text)
    return "%" not in text


def is_pci_address(text: str) -> bool:
    """Whether the text is a full address as sysfs writes it, `0000:0f:00.0`."""
    return _PCI_ADDRESS.fullmatch(text) is not None


def is_reserved_namespace(namespace: str) -> bool:
    """Whether the namespace belongs to Kubernetes or to what runs beneath the tenants."""
    return namespace in RESERVED_NAMESPACES or namespace.startswith(RESERVED_PREFIX)


def tenant_namespace(prefix: str, tenant: str) -> str:
    """The namespace of a tenant that names none."""
    return f"{prefix}{tenant}"
