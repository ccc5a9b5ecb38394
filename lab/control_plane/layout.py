"""Where everything of a control plane lies in the folder of its lab."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths below the folder of a lab; `root` is what belongs to the control plane alone."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Layout:
        """The layout of a lab; the path is made absolute, as processes are recognised by it."""
        return cls(folder.resolve())

    @property
    def root(self) -> Path:
        """What belongs to the control plane alone."""
        return self.folder / "control_plane"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.root / "pki"

    @property
    def etcd_data(self) -> Path:
        """The data of the cluster."""
        return self.root / "etcd"

    @property
    def ports(self) -> Path:
        """The ports, chosen once."""
        return self.root / "ports.json"

    @property
    def lock(self) -> Path:
        """Held while a command works on the control plane."""
        return self.root / ".lock"

    @property
    def stages(self) -> Path:
        """The configuration of KWOK."""
        return self.root / "kwok.yaml"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for the user of the lab."""
        return self.folder / "kubeconfig"

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
