"""One systemd unit on a host: its file, whether it starts at boot, whether it runs. Pure but for its port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict

from gpuclusters.core.converge import Reporter
from gpuclusters.domain.connection import HostConnection
from gpuclusters.domain.host_file import check_content, sha256_of
from gpuclusters.domain.ports import NodeFiles
from gpuclusters.domain.refusals import RefusalError
from gpuclusters.domain.text import matches

FOLDER = "/etc/systemd/system"
MODE, OWNER = "0644", "root:root"


class HostUnitInputs(BaseModel):
    """Inputs of a unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection: HostConnection
    unit: Annotated[
        str,
        matches(
            r"[A-Za-z0-9:_.\\@-]{1,200}\.(service|timer|socket|path|target|mount|slice)",
            "write a unit's whole name, like 'gpu-clusters-vfio.service'",
        ),
    ]
    content: Annotated[str, AfterValidator(check_content)]
    enabled: bool = True
    active: bool = True
    adopt: bool = False

    @property
    def natural_id(self) -> str:
        """`host:unit`."""
        return f"{self.connection.host}:{self.unit}"

    @property
    def path(self) -> str:
        """Where its file is."""
        return f"{FOLDER}/{self.unit}"


@dataclass(frozen=True, slots=True)
class UnitState:
    """A unit as systemd has it, in systemctl's words."""

    enabled: str
    active: str
    stale: bool = False
    """Whether systemd has not read its file since it was changed."""

    def is_enabled(self) -> bool:
        """Whether it starts at boot; a unit without [Install] is started by others."""
        return self.enabled in {"enabled", "static", "enabled-runtime", "alias", "indirect"}


class HostUnits(Protocol):
    """The units of one host."""

    @property
    def place(self) -> str:
        """The host as errors name it."""

    def state(self, unit: str) -> UnitState:
        """What systemd says now."""

    def apply(self, unit: str, *, enabled: bool, active: bool, restart: bool) -> None:
        """Read unit files again, then enable and start or stop it."""

    def remove(self, unit: str) -> None:
        """Disable and stop it, before its file goes; absent is fine."""


def ensure(
    inputs: HostUnitInputs,
    files: NodeFiles,
    units: HostUnits,
    reporter: Reporter,
    *,
    written: str | None,
) -> str:
    """Bring a unit to its inputs; answers the digest of its file.

    `written`: digest of what this resource wrote last, None when it has written nothing yet.

    Raises:
        RefusalError: a different unit of that name is there.
    """
    content = inputs.content.encode()
    live = files.read(inputs.path)
    digest = sha256_of(content)
    same = live is not None and (live.sha256, live.mode, live.owner) == (digest, MODE, OWNER)
    if live is not None and live.sha256 != digest:
        if written is None:
            raise RefusalError(
                f"{files.place}: {inputs.path}",
                f"a different unit of this name is there already (sha256 {live.sha256[:12]})",
                "remove it, choose another name, or make it equal",
            )
        if live.sha256 != written:
            reporter.note(f"{files.place}: {inputs.unit}: its file was changed; put back")
    state = units.state(inputs.unit)
    if same and not state.stale and not differences(inputs, state):
        return digest
    if not same:
        files.write(inputs.path, content, mode=MODE, owner=OWNER)
    units.apply(
        inputs.unit,
        enabled=inputs.enabled,
        active=inputs.active,
        restart=not same or state.stale,
    )
    after = units.state(inputs.unit)
    left = differences(inputs, after)
    if left:
        raise RefusalError(
            f"{units.place}: {inputs.unit}",
            f"is not as it should be after it was set: {', '.join(left)}",
            f"see `journalctl -u {inputs.unit}` on the host, then run again",
        )
    return digest


def differences(inputs: HostUnitInputs, state: UnitState) -> list[str]:
    """In words, what systemd says that the inputs do not."""
    found: list[str] = []
    if inputs.enabled != state.is_enabled():
        found.append(f"it is {state.enabled}, not {'enabled' if inputs.enabled else 'disabled'}")
    if inputs.active != (state.active == "active"):
        found.append(f"it is {state.active}, not {'active' if inputs.active else 'inactive'}")
    return found


def remove(inputs: HostUnitInputs, files: NodeFiles, units: HostUnits, *, written: str) -> None:
    """Stop and remove the unit if its file is what this resource wrote; absent is fine.

    Raises:
        RefusalError: somebody has changed its file since.
    """
    live = files.read(inputs.path)
    if live is not None and live.sha256 != written:
        raise RefusalError(
            f"{files.place}: {inputs.path}",
            f"was changed since it was written here (sha256 {live.sha256[:12]}), so it is not removed",
            "run a refresh to accept it as it is now and destroy again, or remove it by hand",
        )
    units.remove(inputs.unit)
    if live is not None:
        files.remove(inputs.path)
