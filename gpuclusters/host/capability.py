"""What keeps one thing on one host: base of the capabilities in the rooms, and that of a file."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

from gpuclusters.core.converge import (
    Capability,
    Clock,
    Reporter,
    Step,
    poll,
)
from gpuclusters.core.finding import Finding, blocked, refused, repair
from gpuclusters.host.model import MAX_CONTENT_BYTES, HostConnection, HostFileSpec, LiveFile
from gpuclusters.host.remote import SshNodeFiles
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost

I = TypeVar("I")  # noqa: E741
L = TypeVar("L")
POLL_SECONDS = 2.0
Reach = Callable[[HostConnection], SshHost]


class HostCapability(Capability[L], Generic[I, L]):
    """A room says what it observes and finds, its steps, and what its resource tells."""

    room: ClassVar[str] = ""
    """Whose scripts it runs."""
    area: ClassVar[str] = ""
    """Whose `known_errors` say what a failure of a script means."""

    def __init__(
        self,
        inputs: I,
        host: SshHost,
        before: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        """`before` is all that the resource said the last time; nothing when it is made."""
        self._inputs, self._host, self._before = inputs, host, before or {}
        self._clock, self._reporter = clock or Clock(), reporter or Reporter()
        self._files = SshNodeFiles(host)

    @property
    def target(self) -> str:
        return self._host.target

    @classmethod
    def on(cls, inputs: I, reach: Reach, before: Mapping[str, Any]) -> Self:
        """Over SSH; `reach` is the way to the host, and to others that are asked."""
        return cls(inputs, reach(inputs.connection), before)  # type: ignore[attr-defined]

    def _poll(
        self,
        look: Callable[[], Sequence[Finding]],
        seconds: float,
        first_seconds: float,
        target: str = "",
    ) -> Sequence[Finding]:
        """Wait until nothing is found; what is left when the time is over."""
        who, how = target or self.target, (POLL_SECONDS, self._clock, self._reporter)
        return poll(look, who, seconds, *how, first_seconds=first_seconds)

    def _run(
        self, tried: str, name: str, *arguments: str, seconds: float | None = None, **how: Any
    ) -> str:
        """What a script of the room, or another by `ROOM/SCRIPT`, prints."""
        script = name if "/" in name else f"{self.room}/{name}"
        how = {"tried": tried, "timeout_seconds": seconds, "area": self.area, **how}
        return run_script(self._host, script, arguments, **how).text


WRITE = "write"


def findings(spec: HostFileSpec, live: LiveFile | None, *, written: bool) -> Iterator[Finding]:
    """How the file differs, without its content, which may be secret; `written`: by this resource, before."""
    remedy = "find out who else writes it"
    put_back = partial(repair, path=spec.path, step=WRITE, remedy=remedy)
    if live is None:
        yield put_back("host.file-missing", missing=True)
        return
    content = spec.content.encode()
    if live.content != content:
        told: dict[str, Any] = {"bytes": len(live.content), "wanted": len(content)}
        told |= {"line": _first_difference(live.content, content), "digest": live.sha256[:12]}
        if written:
            yield put_back("host.file-changed", **told)
        else:
            yield blocked("host.file-foreign", spec.path, **told)
    for kind, there, here in (("mode", live.mode, spec.mode), ("owner", live.owner, spec.owner)):
        if there != here:
            yield put_back("host.file-mode", kind=kind, there=there, here=here)


def _first_difference(there: bytes, here: bytes) -> int:
    lines = there.splitlines(), here.splitlines()
    pairs = zip(*lines, strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(map(len, lines)))
    return same + 1


class FileCapability(HostCapability[HostFileSpec, LiveFile | None]):
    @property
    def steps(self) -> Mapping[str, Step[LiveFile | None]]:
        return {WRITE: Step(self._write)}

    def observe(self) -> LiveFile | None:
        return self._files.read(self._inputs.path)

    def findings(self, live: LiveFile | None) -> Iterable[Finding]:
        return findings(self._inputs, live, written=bool(self._before.get("sha256")))

    def differences(self, live: LiveFile | None) -> Iterable[Finding]:
        return self.findings(live) if live else ()

    def outputs(self, live: LiveFile | None) -> Mapping[str, str]:
        return {"sha256": live.sha256 if live else ""}

    def is_absent(self, live: LiveFile | None) -> bool:
        return live is None

    def live_inputs(self, live: LiveFile | None) -> Mapping[str, str]:
        assert live is not None  # noqa: S101 (else it is absent)
        content = live.content.decode(errors="replace")
        if "\0" in content or len(live.content) > MAX_CONTENT_BYTES:
            content = f"(not text, or too large; sha256 {live.sha256})"
        # A default is not an input that was given, and a mode may be written with three digits.
        found = {"mode": live.mode, "owner": live.owner}
        other = {key: there for key, there in found.items() if getattr(self._inputs, key) != there}
        return {"content": content, **other}

    def remove(self) -> None:
        live, path, written = self.observe(), self._inputs.path, self._before.get("sha256") or ""
        if live is not None and live.sha256 != written:
            raise refused(
                self.target,
                "host.file-changed",
                path=path,
                case="removal",
                digest=live.sha256[:12],
                written=written[:12],
            )
        if live is not None:
            self._files.remove(path)

    def _write(self, _live: LiveFile | None, _found: Sequence[Finding]) -> None:
        spec = self._inputs
        self._files.write(spec.path, spec.content.encode(), mode=spec.mode, owner=spec.owner)
