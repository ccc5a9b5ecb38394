"""Where things lie in the folder of simulated hosts, and how its small JSON files are written.

<folder>/hosts.json               which hosts to serve; written by whoever starts them
<folder>/ready.json               what the server serves; written by the server
<folder>/server.json              pid and start time of the server
<folder>/control.sock             the server's control socket
<folder>/server.log
<folder>/<host>/host.json         port, platform, boot id: chosen once
<folder>/bmc-password             password of every management controller
<folder>/<host>/host_key          the host's private SSH key
<folder>/<host>/bmc.crt, bmc.key  certificate of the host's management controller
<folder>/<host>/gpus.json         what GPUs carry from one tenant to the next
<folder>/<host>/state.json        what the stand-ins remember
<folder>/<host>/faults.json       injected faults
<folder>/<host>/virtual_machines.json   who uses which partition
<folder>/<host>/journal.jsonl     connections, commands, stand-ins that ran
<folder>/<host>/machine.json      the real node that is one machine with the host; written by who holds it
<folder>/<host>/root              the host's file system
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.server_process import ServerFolder


@dataclass(frozen=True, slots=True)
class HostFolder:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def identity(self) -> Path:
        """Port, platform and boot id."""
        return self.path / "host.json"

    @property
    def host_key(self) -> Path:
        """The private host key."""
        return self.path / "host_key"

    @property
    def bmc_certificate(self) -> Path:
        """The management controller's certificate, PEM."""
        return self.path / "bmc.crt"

    @property
    def bmc_key(self) -> Path:
        """The management controller's private key."""
        return self.path / "bmc.key"

    @property
    def gpus(self) -> Path:
        """What GPUs carry from one tenant to the next."""
        return self.path / "gpus.json"

    @property
    def state(self) -> Path:
        """What the stand-ins remember."""
        return self.path / "state.json"

    @property
    def faults(self) -> Path:
        """Injected faults."""
        return self.path / "faults.json"

    @property
    def virtual_machines(self) -> Path:
        """Which partition is used by whom."""
        return self.path / "virtual_machines.json"

    @property
    def journal(self) -> Path:
        """One line of JSON per connection, command and stand-in."""
        return self.path / "journal.jsonl"

    @property
    def machine(self) -> Path:
        """Where the real node under the host is; only written while there is one."""
        return self.path / "machine.json"

    @property
    def root(self) -> Path:
        """The host's `/`."""
        return self.path / "root"

    def forget_disk(self) -> None:
        """Remove all that a new installation of the machine removes.

        Its addresses, its management controller and what its GPUs remember stay.
        """
        shutil.rmtree(self.root, ignore_errors=True)
        for path in (self.host_key, self.state, self.virtual_machines, self.faults):
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class HostsFolder(ServerFolder):
    @property
    def specs(self) -> Path:
        """Which hosts to serve."""
        return self.path / "hosts.json"

    @property
    def process(self) -> Path:
        """Which process serves: pid and start time."""
        return self.path / "server.json"

    @property
    def bmc_password(self) -> Path:
        """The password of every management controller."""
        return self.path / "bmc-password"

    def host(self, name: str) -> HostFolder:
        return HostFolder(self.path / name)
