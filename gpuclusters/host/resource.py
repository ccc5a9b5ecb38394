"""`HostFile`: one file on a host, what differs, and the capability that puts it back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pulumi

from gpuclusters.core.converge import Step
from gpuclusters.core.finding import Finding, Level, refused
from gpuclusters.host.model import MAX_CONTENT_BYTES, HostFileSpec, LiveFile
from gpuclusters.providers.converging import ConvergingProvider, ConvergingResource
from gpuclusters.providers.reconciling import Properties

if TYPE_CHECKING:
    from gpuclusters.host.ssh import SshHost

WRITE = "write"


def findings(spec: HostFileSpec, live: LiveFile | None, *, written: bool) -> Iterator[Finding]:
    """How the file differs; `written` says that this resource has written it before.

    The content itself is not told: it may be secret.
    """
    where, remedy = (spec.path,), "find out who else writes it"
    if live is None:
        problem = f"{spec.path} is gone"
        yield Finding(
            "host.file-missing", problem, remedy, where, Level.REPAIR, WRITE, missing=True
        )
        return
    content = spec.content.encode()
    if live.content != content:
        problem = (
            f"{spec.path} has other content from line {_first_difference(live.content, content)} on "
            f"({len(live.content)} bytes instead of {len(content)}, sha256 {live.sha256[:12]})"
        )
        if written:
            yield Finding("host.file-changed", problem, remedy, where, Level.REPAIR, WRITE)
        else:
            yield Finding("host.file-foreign", problem, "move it away, or make it equal", where)
    for what, there, here in (("mode", live.mode, spec.mode), ("owner", live.owner, spec.owner)):
        if there != here:
            problem = f"{spec.path} has {what} {there} instead of {here}"
            yield Finding("host.file-mode", problem, remedy, where, Level.REPAIR, WRITE)


def _first_difference(there: bytes, here: bytes) -> int:
    lines = there.splitlines(), here.splitlines()
    pairs = zip(*lines, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, lines)))
    return same + 1


class FileCapability:
    """One file of one host; `written` is the digest that this resource wrote last."""

    def __init__(self, inputs: HostFileSpec, host: SshHost, written: str) -> None:
        from gpuclusters.host.remote import SshNodeFiles

        self._inputs, self._written = inputs, written
        self._files = SshNodeFiles(host)
        self.target = host.target
        self.steps = {WRITE: Step(self._write)}

    def observe(self) -> LiveFile | None:
        """The file, if it is there."""
        return self._files.read(self._inputs.path)

    def findings(self, live: LiveFile | None) -> Iterable[Finding]:
        """See `findings`."""
        return findings(self._inputs, live, written=bool(self._written))

    def differences(self, live: LiveFile | None) -> Iterable[Finding]:
        """All, of a file that is there."""
        return self.findings(live) if live else ()

    def remove(self) -> None:
        """Remove the file if it is what this resource wrote; absent is fine."""
        live = self.observe()
        if live is None:
            return
        if live.sha256 != self._written:
            raise refused(
                self.target,
                "host.file-changed",
                f"{self._inputs.path} was changed on the host since it was written here (sha256 "
                f"{live.sha256[:12]} instead of {self._written[:12]}), so it is not removed",
                "run a refresh to accept it as it is now and destroy again, or remove it by hand",
            )
        self._files.remove(self._inputs.path)

    def _write(self, _live: LiveFile | None, _found: Sequence[Finding]) -> None:
        spec = self._inputs
        self._files.write(spec.path, spec.content.encode(), mode=spec.mode, owner=spec.owner)


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
