"""The certificate that the API shows where it ends TLS itself: from a Secret, and again when that changes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

from caas.settings import SettingsError

AGAIN_SECONDS = 60.0
"""How often the files are looked at. The kubelet itself takes about a minute to renew a mounted Secret."""
_log = logging.getLogger(__name__)


class Certificate:
    """`tls.crt` (the chain, the server's own first) and `tls.key` in a folder, as kubernetes.io/tls has them.

    Raises:
        SettingsError: they cannot be read, or do not belong together.
    """

    def __init__(self, folder: Path) -> None:
        self._chain, self._key = folder / "tls.crt", folder / "tls.key"
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """Of the server; connections that are made later show what was read last."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._known = self._content()
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{folder}: {_why(error)}") from error

    async def follow(self) -> None:
        """Read it again whenever it changes. An unusable one is told in the log, and the old one stays."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            self.renew()

    def renew(self) -> None:
        """Look once."""
        found = self._content()
        if found == self._known:
            return
        try:
            self._load()
        except (OSError, ssl.SSLError) as error:
            _log.error("the new certificate is not used: %s", _why(error))
        else:
            _log.info("the certificate was renewed")
        self._known = found

    def _load(self) -> None:
        self.context.load_cert_chain(self._chain, self._key)

    def _content(self) -> tuple[bytes, bytes] | None:
        try:
            return self._chain.read_bytes(), self._key.read_bytes()
        except OSError:
            return None


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"tls.crt and tls.key are not a certificate and its key ({error.reason})"
    return f"tls.crt or tls.key cannot be read: {error.strerror}"
