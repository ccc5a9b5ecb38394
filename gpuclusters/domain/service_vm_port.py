"""What the decisions about a service VM need from its host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpuclusters.domain.cloud_init import Seed
from gpuclusters.domain.service_vm_guest import Guest
from gpuclusters.domain.service_vm_state import LiveVm


class ServiceVmHost(Protocol):
    """One host and its service VM. Every verb may be repeated: what is done already is fine."""

    @property
    def place(self) -> str:
        """The host as errors name it."""

    def look(self) -> LiveVm:
        """What is there now; changes nothing."""

    def state(self) -> str | None:
        """As `virsh domstate` says; None if there is no domain."""

    def ask_guest(self) -> Guest:
        """What the VM, which runs, says of itself over SSH; that it cannot be asked is no error."""

    def fetch_image(self, seconds: int) -> str | None:
        """Get and verify the image for so long: None when it may be used, else how far it got."""

    def install(self, files: Mapping[str, str], executable: frozenset[str]) -> None:
        """Write the host's own files, and let systemd start the VM at boot."""

    def write_seed(self, seed: Seed) -> None:
        """Make the seed, with the keys that the host keeps."""

    def define_network(self, xml: str) -> None:
        """Define the network anew and start it; the VM has to be off."""

    def make_disk(self) -> None:
        """Make the VM's disk, over the verified image; what was there is gone."""

    def define_domain(self, xml: str) -> None:
        """Define the domain that the next start uses, started with libvirt."""

    def start(self) -> None:
        """Start the VM."""

    def shut_down(self, seconds: int) -> bool:
        """Ask the VM to shut down and wait; whether it did."""

    def power_off(self) -> None:
        """Take the VM's power."""

    def remove(self, *, network: bool) -> None:
        """Remove the VM, which is off, and all that belongs to it."""
