"""What of a machine no resource of the stack looks at, and machines that cannot be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuclusters.drift.engine import View
from gpuclusters.drift.finding import Finding
from gpuclusters.host.model import HostConnection
from gpuclusters.lease.firmware import Golden, firmware_findings

_UNREACHED = {
    "remote.host-key-mismatch": "host.key-changed",
    "remote.denied": "host.refuses",
}
_CONNECTION = ("host", "address", "port", "user", "host_key")


@dataclass(frozen=True, slots=True)
class HostLook:
    """What a machine says."""

    reboot_required: bool = False
    reboot_for: str = ""
    """Packages that want it, where the system names them."""
    failed_units: tuple[str, ...] = ()


def connections(view: View) -> Mapping[str, HostConnection]:
    """How each machine of the stack is reached, by name, as its resources have it."""
    found: dict[str, HostConnection] = {}
    for resource in view.states.values():
        if not resource.type.startswith("gpu-clusters:gpu:"):
            continue
        stated = resource.at("connection")
        if isinstance(stated, Mapping) and all(stated.get(key) for key in _CONNECTION):
            values = {key: stated[key] for key in _CONNECTION}
            values["port"] = int(float(values["port"]))
            found.setdefault(str(stated["host"]), HostConnection.model_validate(values))
    return dict(sorted(found.items()))


def findings(host: str, look: HostLook) -> Iterator[Finding]:
    """How a machine differs in what no resource looks at."""
    for unit in look.failed_units:
        yield Finding("host.unit-failed", host, unit, "not failed", "failed", up=False)
    if look.reboot_required:
        why = f"wanted by {look.reboot_for}" if look.reboot_for else "wanted by its packages"
        yield Finding("host.reboot-pending", host, "reboot", "none needed", why, up=False)


def unreached(host: str, error: str, problem: str, remedy: str) -> Finding:
    """A machine that did not answer, by the code of the error."""
    kind = _UNREACHED.get(error, "host.unreachable")
    return Finding(kind, host, f"host {host}", "answers over SSH", problem, up=False, do=remedy)


def firmware(
    host: str,
    modules: Iterable[int],
    accepted: Mapping[str, Sequence[str]],
    inventory: Mapping[str, str | None],
) -> Iterator[Finding]:
    """Items of a machine's inventory that are not of the golden set, each once."""
    golden = Golden({item: tuple(versions) for item, versions in accepted.items()}, {})
    said = dict.fromkeys(
        line for module in modules for line in firmware_findings(golden, module, inventory)
    )
    for line in said:
        item, _, rest = line.partition(" is ")
        found, _, wanted = rest.partition(", accepted is ")
        if wanted:
            yield Finding("host.firmware-changed", host, item, wanted, found, up=False)
        else:
            yield Finding(
                "host.firmware-changed",
                host,
                "inventory",
                "every item of the golden set",
                line,
                up=False,
            )
