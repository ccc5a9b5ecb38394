"""What the issuer is to others: an address, a process, an error; and where its files lie."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.server_process import ServerFolder

ADDRESS: Final = "127.0.0.1"
AUDIENCE: Final = "gpu-clusters"
CLAIM: Final = "tenant"
KEYS: Final = "/keys"
"""Path of the keys."""


class IssuerError(Exception):
    """The issuer cannot be started, asked or stopped; one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class IssuerStatus:
    """The server process: where it answers (`url` is the issuer's name), and whether it does."""

    running: bool
    url: str | None
    pid: int | None
    log: Path
    keys_url: str | None = None
    """Where pods of real nodes fetch its keys; None if they are served on loopback alone."""
    ca_certificate: str | None = None
    """PEM of the authority of the certificate that is shown there."""
    port: int | None = None
    """The port of the machine's loopback that must be opened to pods for it."""


@dataclass(frozen=True, slots=True)
class IssuerFolder(ServerFolder):
    @property
    def port(self) -> Path:
        """The port that it keeps."""
        return self.path / "port.json"

    @property
    def ports(self) -> Path:
        """Its claim to that port among all labs of the user."""
        return self.path / "ports.json"

    @property
    def keys(self) -> Path:
        """What it publishes: a JSON Web Key Set."""
        return self.path / "jwks.json"

    @property
    def private_key(self) -> Path:
        """What signs tokens, as JSON Web Key; readable by its owner alone."""
        return self.path / "signing-key.json"

    @property
    def over_tls(self) -> Path:
        """Where its keys are served over TLS; there while they are."""
        return self.path / "over-tls.json"

    @property
    def certificate(self) -> Path:
        """What it shows over TLS; its key lies beside it."""
        return self.path / "serving.crt"

    @property
    def keys_ports(self) -> Path:
        """The port that it keeps for its keys over TLS."""
        return self.path / "keys-port.json"
