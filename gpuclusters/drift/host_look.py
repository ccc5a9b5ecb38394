"""What of a host no resource looks at: failed units, a restart that is due. Only reads."""

from __future__ import annotations

from gpuclusters.core.errors import InvalidAnswerError
from gpuclusters.drift.hosts import HostLook
from gpuclusters.host.script import run_script
from gpuclusters.host.ssh import SshHost

_TRIED = "look at it"


def look(host: SshHost) -> HostLook:
    """One script, one answer.

    Raises:
        AdapterError: not reached, not allowed in, or the answer is not whole.
    """
    done = run_script(host, "drift/host", [], tried=_TRIED, repeatable=True)
    lines = [line.partition(" ")[::2] for line in done.stdout.decode(errors="replace").splitlines()]
    found = dict(lines)
    if "end" not in found:
        raise InvalidAnswerError(
            host.target,
            _TRIED,
            "its answer is not whole",
            "check that its /bin/sh and awk are the usual ones",
        )
    return HostLook(
        reboot_required="reboot-required" in found,
        reboot_for=found.get("reboot-required", "").strip(),
        failed_units=tuple(sorted({value for key, value in lines if key == "failed-unit"})),
    )
