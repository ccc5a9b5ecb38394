"""Where things lie in the folder of simulated hosts.

<folder>/hosts.json               which hosts to serve; written by whoever starts them
<folder>/ready.json               what the server serves; written by the server
<folder>/server.json              pid and start time of the server
<folder>/control.sock             the server's control socket
<folder>/server.log
<folder>/bmc-password             password of every management controller
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.files import At
from lab.hosts.model import HostsError
from lab.server_process import ServerFolder


class _File:
    """A file of a host, by its name in the host's folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: HostFolder, _: type[HostFolder]) -> Path:
        return folder.path / self._name


@dataclass(frozen=True, slots=True)
class HostFolder:
    """`<folder>/<host>`."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    identity = _File("host.json")
    """Port, platform, boot id: chosen once."""
    host_key = _File("host_key")
    """The private host key."""
    bmc_certificate = _File("bmc.crt")
    """The management controller's certificate, PEM."""
    bmc_key = _File("bmc.key")
    gpus = _File("gpus.json")
    """What GPUs carry from one tenant to the next."""
    state = _File("state.json")
    """What the stand-ins remember."""
    faults = _File("faults.json")
    """Injected faults."""
    virtual_machines = _File("virtual_machines.json")
    """Which partition is used by whom."""
    journal = _File("journal.jsonl")
    """One line of JSON per connection, command and stand-in."""
    machine = _File("machine.json")
    """Where the real node under the host is; only written while there is one, by who holds it."""
    root = _File("root")
    """The host's `/`."""

    def forget_disk(self) -> None:
        """Remove all that a new installation of the machine removes.

        Its addresses, its management controller and what its GPUs remember stay.
        """
        shutil.rmtree(self.root, ignore_errors=True)
        for path in (self.host_key, self.state, self.virtual_machines, self.faults):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class HostsFolder(ServerFolder):
    specs = At("hosts.json")
    """Which hosts to serve."""
    process = At("server.json")
    """Which process serves: pid and start time."""
    bmc_password = At("bmc-password")
    """The password of every management controller."""

    def host(self, name: str) -> HostFolder:
        return HostFolder(self.path / name)

    def existing(self, name: str) -> HostFolder:
        """The folder of a host that was started; `HostsError` when there is none."""
        host = self.host(name)
        if not host.identity.exists():
            raise HostsError(
                f"there is no simulated host {name!r} in {self.path}; start it first, or check its name"
            )
        return host
