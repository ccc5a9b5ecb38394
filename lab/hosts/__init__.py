"""Simulated HGX machines, reached over real SSH, each with a file system and commands of its own."""

from lab.hosts.model import HostEndpoint, HostsError, HostSpec, ServerStatus
from lab.hosts.process import start, status, stop

__all__ = [
    "HostEndpoint",
    "HostSpec",
    "HostsError",
    "ServerStatus",
    "start",
    "status",
    "stop",
]
