"""The cluster's own programs: the namespace and the account of each.

Whoever may make pods in a namespace reads every Secret in it and takes every account in it. So each program
has a namespace of its own: that of the controllers holds the keys of the machines and BMCs, and that of the
device plugin alone lets pods reach the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

BASE = "gpu-clusters-system"
"""The namespaces' base name, where the configuration says nothing."""
LONGEST_BASE = 49
"""With this many characters the longest derived name still is one that Kubernetes takes."""


class Program(StrEnum):
    """A program of the cluster; the value names its account, its pods and its module."""

    CONTROLLERS = "controllers"
    API = "api"
    DEVICE_PLUGIN = "device-plugin"


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where each program lives and as whom it speaks.

    Attributes:
        base: namespace of the API. The others are named after it, without its ending `-system`, and after
            their program: `gpu-clusters-controllers`, `gpu-clusters-device-plugin`.
    """

    base: str = BASE

    def namespace(self, program: Program) -> str:
        """The program's namespace."""
        if program is Program.API:
            return self.base
        return f"{self.base.removesuffix('-system')}-{program}"

    def user(self, program: Program) -> str:
        """The name by which the API server knows the program's account."""
        return f"system:serviceaccount:{self.namespace(program)}:{program}"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(map(self.namespace, Program))


TENANTS_PROGRAMS = (Program.API, Program.CONTROLLERS)
"""Those that work in tenants' namespaces."""


def tenant_role(program: Program) -> str:
    """The ClusterRole with what a program does in a tenant's namespace; bound there and nowhere else."""
    return f"gpu-clusters-tenant-{program}"
