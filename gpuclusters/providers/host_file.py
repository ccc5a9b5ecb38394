"""One file on a host that is put back when it drifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pulumi

from gpuclusters.domain import adoption_host, reconcile
from gpuclusters.domain.host_file import MAX_CONTENT_BYTES, HostFileSpec
from gpuclusters.providers.hosts import host
from gpuclusters.providers.kept import KeptProvider, Live, Properties
from gpuclusters.providers.resource import Resource

if TYPE_CHECKING:
    from gpuclusters.adapters.node_files import SshNodeFiles


class HostFileProvider(KeptProvider[HostFileSpec]):
    """Keeps one file; a file with equal content counts as ours."""

    model = HostFileSpec
    changes_machine = True
    identity = frozenset({"connection.host", "path"})
    # Files may hold tokens; engines mask a secret input, but not a message.
    sensitive = frozenset({"content"})

    def ensure(self, inputs: HostFileSpec, before: Properties) -> Properties:
        """Write the file unless it is as it must be."""
        from gpuclusters.adapters.here import StderrReporter

        digest = reconcile.ensure_file(
            inputs, self._files(inputs), StderrReporter(), written=before.get("sha256")
        )
        return {"sha256": digest}

    def differences(self, inputs: HostFileSpec) -> Sequence[str]:
        """Of a file that is there."""
        return [*adoption_host.file(inputs, self._files(inputs).read(inputs.path))]

    def observe(self, inputs: HostFileSpec, before: Properties) -> Live | None:  # noqa: ARG002
        """The file as it is."""
        live = self._files(inputs).read(inputs.path)
        if live is None:
            return None
        content = live.content.decode(errors="replace")
        if "\0" in content or len(live.content) > MAX_CONTENT_BYTES:
            content = f"(not text, or too large; sha256 {live.sha256})"
        found = {"content": content, "mode": live.mode, "owner": live.owner}
        if inputs.mode == live.mode:
            del found["mode"]  # may be written with three digits; not a difference
        return Live({"sha256": live.sha256}, found)

    def remove(self, inputs: HostFileSpec, before: Properties) -> None:
        """Remove the file if it is what we wrote."""
        reconcile.remove_file(inputs.path, self._files(inputs), written=before["sha256"])

    def _files(self, inputs: HostFileSpec) -> SshNodeFiles:
        from gpuclusters.adapters.node_files import SshNodeFiles

        return SshNodeFiles(host(inputs.connection, self.ssh_key))


class HostFile(Resource, module="gpu", name="HostFile"):
    """A file on a host, with content, mode and owner."""

    path: pulumi.Output[str]
    sha256: pulumi.Output[str]
    """Digest of the content that is on the host."""

    def __init__(
        self,
        name: str,
        *,
        connection: pulumi.Input[Any],
        path: pulumi.Input[str],
        content: pulumi.Input[str],
        mode: pulumi.Input[str] = "0644",
        owner: pulumi.Input[str] = "root:root",
        adopt: bool = False,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        properties: dict[str, Any] = {
            "connection": connection,
            "path": path,
            "content": content,
            "mode": mode,
            "owner": owner,
            "adopt": adopt,
            "sha256": None,
        }
        super().__init__(name, properties, opts)
