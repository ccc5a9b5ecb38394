"""What of a machine no resource of the stack looks at: failed units, a restart that is due, firmware."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuclusters.core.errors import AdapterError
from gpuclusters.core.facts import Facts
from gpuclusters.drift.report import Finding
from gpuclusters.host.model import HostConnection
from gpuclusters.host.script import read_facts, run_script
from gpuclusters.host.ssh import SshHost
from gpuclusters.lease.firmware import Golden, firmware_findings

_TRIED = "look at it"
_UNREACHED = {
    "remote.host-key-mismatch": "host.key-changed",
    "remote.denied": "host.refuses",
}
_CONNECTION = ("host", "address", "user", "host_key")


class HostFacts(Facts):
    reboot_required: str | None = None
    """The packages that want it, where the system names them; None where none is due."""
    failed_unit: frozenset[str] = frozenset()
    end: str
    """The last line: an answer without it is not whole."""


def look(host: SshHost) -> HostFacts:
    """One script, one answer. Only reads."""
    done = run_script(host, "drift/host", [], tried=_TRIED, repeatable=True)
    return read_facts(HostFacts, host, done.stdout.decode(errors="replace"), tried=_TRIED)


def connections(inputs: Iterable[Mapping[str, Any]]) -> Mapping[str, HostConnection]:
    """How each machine of a stack is reached, by name, as the inputs of its resources have it."""
    found: dict[str, HostConnection] = {}
    for one in inputs:
        stated = one.get("connection")
        if isinstance(stated, Mapping) and all(stated.get(key) for key in _CONNECTION):
            values = {key: stated[key] for key in HostConnection.model_fields if key in stated}
            values["port"] = int(float(values.get("port", 22)))
            found.setdefault(str(stated["host"]), HostConnection.model_validate(values))
    return dict(sorted(found.items()))


def findings(host: str, said: HostFacts) -> Iterator[Finding]:
    """How a machine differs in what no resource looks at."""
    for unit in sorted(said.failed_unit):
        yield Finding("host.unit-failed", host, unit, "not failed", "failed", up=False)
    if said.reboot_required is not None:
        why = f"wanted by {said.reboot_required or 'its packages'}"
        yield Finding("host.reboot-pending", host, "reboot", "none needed", why, up=False)


def unreached(host: str, error: AdapterError) -> Finding:
    """A machine that did not answer."""
    kind = _UNREACHED.get(error.error_id, "host.unreachable")
    said = ("answers over SSH", error.problem)
    return Finding(kind, host, f"host {host}", *said, up=False, do=error.remedy)


def firmware(
    host: str,
    modules: Iterable[int],
    accepted: Mapping[str, Sequence[str]],
    inventory: Mapping[str, str | None],
) -> Iterator[Finding]:
    """Items of a machine's inventory that are not of the golden set, each once."""
    golden = Golden(versions={item: tuple(versions) for item, versions in accepted.items()})
    said = dict.fromkeys(
        line for module in modules for line in firmware_findings(golden, module, inventory)
    )
    for line in said:
        item, _, rest = line.partition(" is ")
        found, _, wanted = rest.partition(", accepted is ")
        what = (
            (item, wanted, found) if wanted else ("inventory", "every item of the golden set", line)
        )
        yield Finding("host.firmware-changed", host, *what, up=False)
