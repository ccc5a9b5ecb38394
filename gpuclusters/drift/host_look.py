"""What of a host no resource looks at: failed units, a restart that is due. Only reads."""

from __future__ import annotations

from gpuclusters.core.facts import Facts
from gpuclusters.drift.hosts import HostLook
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import SshHost

_TRIED = "look at it"


class _Said(Facts):
    reboot_required: str | None = None
    failed_unit: frozenset[str] = frozenset()
    end: str
    """The last line: an answer without it is not whole."""


def look(host: SshHost) -> HostLook:
    """One script, one answer."""
    done = run_script(host, "drift/host", [], tried=_TRIED, repeatable=True)
    said = read_facts(_Said, host, done.stdout.decode(errors="replace"), tried=_TRIED)
    return HostLook(
        reboot_required=said.reboot_required is not None,
        reboot_for=said.reboot_required or "",
        failed_units=tuple(sorted(said.failed_unit)),
    )
