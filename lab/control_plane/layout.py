"""Where everything of a control plane lies in the folder of its lab."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.files import At


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the folder of a lab; `root` is what belongs to the control plane alone."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Layout:
        """The layout of a lab; the path is made absolute, as processes are recognised by it."""
        return cls(folder.resolve())

    root = At("control_plane", "folder")
    """What belongs to the control plane alone."""
    pki = At("pki", "root")
    """Certificates and keys."""
    etcd_data = At("etcd", "root")
    """The data of the cluster."""
    ports = At("ports.json", "root")
    """The ports, chosen once."""
    lock = At(".lock", "root")
    """Held while a command works on the control plane."""
    kubeconfig = At("kubeconfig", "folder")
    """The administrator's kubeconfig, for the user of the lab."""

    def kubeconfig_of(self, name: str) -> Path:
        """The kubeconfig of a process of the control plane."""
        return self.root / f"{name}.kubeconfig"

    def log(self, name: str) -> Path:
        """The log of a process; that of the run before has `.1` behind it."""
        return self.root / "logs" / f"{name}.log"

    def certificate(self, name: str) -> Path:
        """A certificate by name."""
        return self.pki / f"{name}.crt"

    def key(self, name: str) -> Path:
        """The private key of the certificate."""
        return self.pki / f"{name}.key"
