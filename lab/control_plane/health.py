"""Whether a process of the control plane does its work, and waiting until it does."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.control_plane.commands import API_SERVER, ETCD
from lab.control_plane.kube import Https, UnavailableError, tls
from lab.control_plane.layout import Layout
from lab.control_plane.model import ControlPlaneError
from lab.control_plane.processes import Running, is_alive, last_words

POLL_SECONDS = 0.05
_PROBE_SECONDS = 5.0
_PATHS = {ETCD: "/health", API_SERVER: "/readyz"}


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks the processes of one lab for their health."""

    ports: Mapping[str, int]
    identity: ssl.SSLContext

    @classmethod
    def of(cls, layout: Layout, ports: Mapping[str, int]) -> Probe:
        """A probe with an identity that both etcd and the API server let in."""
        return cls(ports, tls(layout, "admin"))

    def healthy(self, name: str) -> bool:
        """Whether the process answers that it is well."""
        try:
            with Https(self.ports[name], self.identity, _PROBE_SECONDS) as connection:
                return connection.request("GET", _PATHS.get(name, "/healthz"))[0] == 200
        except UnavailableError:
            return False


def wait_until(
    ready: Callable[[], bool],
    what: str,
    processes: Mapping[str, Running],
    layout: Layout,
    *,
    seconds: float,
) -> None:
    """Poll `ready` until it holds.

    Raises `ControlPlaneError` as soon as one of `processes` has died, with its last words, or
    after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        for running in processes.values():
            if not is_alive(running):
                raise ControlPlaneError(_died(running.name, layout))
        if time.monotonic() >= deadline:
            logs = layout.log(API_SERVER).parent
            raise ControlPlaneError(
                f"{what} was not reached within {seconds:.0f} s; the logs are in {logs}"
            )
        time.sleep(POLL_SECONDS)


def _died(name: str, layout: Layout) -> str:
    log = layout.log(name)
    words = last_words(log)
    hint = ""
    if "no space left on device" in words:
        hint = f"; the disk of {layout.root} is full: free some space and start again"
    return f"{name} ended while the control plane started: {words} (log: {log}){hint}"
