"""`HostFile`: one file on a host that is put back when it drifts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pulumi

from gpuclusters.host.file import FileCapability
from gpuclusters.host.model import MAX_CONTENT_BYTES, HostFileSpec, LiveFile
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost


class HostFileProvider(ConvergingProvider[HostFileSpec, "LiveFile | None"]):
    """Keeps one file; a file with equal content counts as ours."""

    model = HostFileSpec
    identity = frozenset({"connection.host", "path"})
    # Files may hold tokens; engines mask a secret input, but not a message.
    sensitive = frozenset({"content"})

    def capability(self, inputs: HostFileSpec, before: Properties, host: SshHost) -> FileCapability:
        """One file of one host."""
        return FileCapability(inputs, host, before.get("sha256") or "")

    def outputs(self, inputs: HostFileSpec, live: LiveFile | None) -> Properties:  # noqa: ARG002
        """The digest."""
        return {"sha256": live.sha256 if live else ""}

    def live_inputs(self, inputs: HostFileSpec, live: LiveFile | None) -> Properties:
        """The file as it is."""
        assert live is not None  # noqa: S101 (else it is absent)
        content = live.content.decode(errors="replace")
        if "\0" in content or len(live.content) > MAX_CONTENT_BYTES:
            content = f"(not text, or too large; sha256 {live.sha256})"
        # A default is not an input that was given, and a mode may be written with three digits.
        found = {"mode": live.mode, "owner": live.owner}
        other = {key: there for key, there in found.items() if getattr(inputs, key) != there}
        return {"content": content, **other}

    def is_absent(self, inputs: HostFileSpec, live: LiveFile | None) -> bool:  # noqa: ARG002
        """Whether the file is gone."""
        return live is None


class HostFile(ConvergingResource, module="gpu", name="HostFile"):
    """A file on a host, with content, mode and owner."""

    provider = HostFileProvider
    path: pulumi.Output[str]
    sha256: pulumi.Output[str]
    """Digest of the content that is on the host."""
