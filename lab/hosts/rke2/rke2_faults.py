"""Faults of joining an RKE2 cluster, by the message that RKE2 leaves in its journal."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from lab.hosts.service_vm.fabric_faults import BaseFault


class JoinFails(BaseFault):
    """The host cannot join: how its journal shows it."""

    kind: Literal["join-fails"] = "join-fails"
    why: Literal["wrong-token", "clock-skew", "duplicate-name", "port-closed", "server-lost"]


class JoinIsSlow(BaseFault):
    """Joining takes at least so long."""

    kind: Literal["join-is-slow"] = "join-is-slow"
    seconds: float = Field(ge=0)


class PortTaken(BaseFault):
    """A program of the machine listens on a port."""

    kind: Literal["port-taken"] = "port-taken"
    port: int = Field(ge=1, le=65535)


class DownloadRefused(BaseFault):
    """Downloads are answered with a status of HTTP that is an error."""

    kind: Literal["download-refused"] = "download-refused"
    status: int = Field(default=403, ge=400, le=599)
