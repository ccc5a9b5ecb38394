"""Stand-in for `virsh`: domains and networks with their states. Source: virsh(1) and its messages."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from uuid import uuid4

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import LibvirtDown
from lab.hosts.machine import Machine
from lab.hosts.program import program
from lab.hosts.service_vm import libvirt
from lab.hosts.service_vm.libvirt import Record

_NOT_CONNECTED = (
    "error: failed to connect to the hypervisor\nerror: Failed to connect socket to "
    "'/var/run/libvirt/libvirt-sock': {}"
)
_VERSION = "10.0.0"


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is the same of domains and of networks."""

    name: str
    all: Callable[[Machine], dict[str, Record]]
    new: Record
    complete: Callable[[ET.Element], str]
    unknown: str
    """What is said where there is none of a name."""
    named: str
    """How one is named in what is said."""


_DOMAIN = _Kind(
    "domain",
    libvirt.domains,
    {"running": False, "id": 0, "autostart": False},
    libvirt.complete,
    "error: failed to get domain '{0}'",
    "Domain '{}'",
)


def _networks(machine: Machine) -> dict[str, Record]:
    libvirt.domains(machine)  # a prepared machine has its network too
    return libvirt.networks(machine)


def _complete_network(root: ET.Element) -> str:
    if root.find("uuid") is None:
        ET.SubElement(root, "uuid").text = str(uuid4())
    if root.find("mac") is None:
        ET.SubElement(root, "mac", {"address": "52:54:00:fa:b0:01"})
    return libvirt.text(root)


_NETWORK = _Kind(
    "network",
    _networks,
    {"active": False, "autostart": False},
    _complete_network,
    "error: failed to get network '{0}'\n"
    "error: Network not found: no network with matching name '{0}'",
    "Network {}",
)


@program(
    "virsh",
    of="libvirt-clients libvirt-client",
    flags="--version --validate --inactive --all --name --nvram --disable",
    values="--connect",
    unknown="error: unsupported option '{option}'",
)
def virsh(call: Call) -> Answer:
    if call.has("--version"):
        return Answer.out(_VERSION)
    act = _COMMANDS.get(call.verb)
    if act is None:
        raise RefusedError(f"error: unknown command: '{call.verb}'")
    if not call.is_root:
        raise RefusedError(_NOT_CONNECTED.format("Permission denied"))
    if call.faults.first(LibvirtDown):
        raise RefusedError(_NOT_CONNECTED.format("No such file or directory"))
    try:
        answer = act(call)
    except RefusedError as error:
        answer = error.answer
    # vsh ends every command with an empty line, one that failed too.
    return answer if answer.exit == 0 else replace(answer, stdout="\n")


_Act = Callable[[Call, str, Record], Answer]


def _named(kind: _Kind, act: _Act) -> Callable[[Call], Answer]:
    def find(call: Call) -> Answer:
        names = call.words[1:]
        if len(names) != 1:
            raise RefusedError(f"error: command requires <{kind.name}> option")
        record = kind.all(call.machine).get(names[0])
        if record is None:
            raise RefusedError(kind.unknown.format(names[0]))
        return act(call, names[0], record)

    return find


def _changed(call: Call, kind: _Kind, action: str, name: str, said: str) -> Answer:
    call.machine.note(kind.name, action=action, **{kind.name: name})
    return Answer.out(f"{kind.named.format(name)} {said}\n\n")


def _uuid(record: Record) -> str:
    return ET.fromstring(record["xml"]).findtext("uuid", "")  # noqa: S314 - root's own


def _define(kind: _Kind) -> Callable[[Call], Answer]:
    def define(call: Call) -> Answer:
        if len(call.words) != len(("define", "file")):
            raise RefusedError(f"error: command '{call.verb}' requires <file> option")
        path = call.words[1]
        failed = f"error: Failed to define {kind.name} from {path}\nerror: "
        xml = call.machine.read_text(call.located(path))
        if xml is None:
            raise RefusedError(f"error: Failed to open file '{path}': No such file")
        try:
            root = ET.fromstring(xml)  # noqa: S314 - root's own
        except ET.ParseError as error:
            raise RefusedError(f"{failed}({kind.name}_definition) {error}") from None
        name = root.findtext("name")
        if not name:
            raise RefusedError(f"error: XML error: {kind.name} name is missing")
        known = kind.all(call.machine)
        if name in known and root.findtext("uuid") != (uuid := _uuid(known[name])):
            text = f"operation failed: {kind.name} '{name}' already exists with uuid {uuid}"
            raise RefusedError(failed + text)
        known.setdefault(name, dict(kind.new))["xml"] = kind.complete(root)
        return _changed(call, kind, "define", name, f"defined from {path}")

    return define


def _autostart(kind: _Kind) -> _Act:
    def autostart(call: Call, name: str, record: Record) -> Answer:
        record["autostart"] = not call.has("--disable")
        word = "marked" if record["autostart"] else "unmarked"
        return _changed(call, kind, "autostart", name, f"{word} as autostarted")

    return autostart


def _start(call: Call, name: str, domain: Record) -> Answer:
    if domain["running"]:
        raise RefusedError("error: Domain is already active")
    problem = libvirt.start(call.machine, call.faults, name)
    if problem:
        raise RefusedError(f"error: Failed to start domain '{name}'\nerror: {problem}")
    return _changed(call, _DOMAIN, "start", name, "started")


def _end(verb: str, said: str) -> _Act:
    def end(call: Call, name: str, domain: Record) -> Answer:
        if not domain["running"]:
            raise RefusedError(
                f"error: Failed to {verb} domain '{name}'\n"
                "error: Requested operation is not valid: domain is not running"
            )
        libvirt.stop(call.machine, call.faults, name)
        return _changed(call, _DOMAIN, verb, name, said)

    return end


def _undefine(call: Call, name: str, domain: Record) -> Answer:
    nvram = ET.fromstring(domain["xml"]).find("os/nvram")  # noqa: S314 - root's own
    if nvram is not None and not call.has("--nvram"):
        raise RefusedError(
            f"error: Failed to undefine domain '{name}'\nerror: Requested operation is not valid: "
            "cannot undefine domain with nvram"
        )
    if not domain["running"]:
        del libvirt.domains(call.machine)[name]
    return _changed(call, _DOMAIN, "undefine", name, "has been undefined")


def _switch(verb: str, said: str, *, on: bool) -> _Act:
    def switch(call: Call, name: str, network: Record) -> Answer:
        if network["active"] == on:
            why = "network is already active" if on else f"network '{name}' is not active"
            raise RefusedError(
                f"error: Failed to {verb} network {name}\n"
                f"error: Requested operation is not valid: {why}"
            )
        network["active"] = on
        return _changed(call, _NETWORK, verb, name, said)

    return switch


def _forget(call: Call, name: str, _: Record) -> Answer:
    del libvirt.networks(call.machine)[name]
    return _changed(call, _NETWORK, "undefine", name, "has been undefined")


def _table(values: Mapping[str, str]) -> Answer:
    return Answer.out("".join(f"{f'{key}:':<16}{value}\n" for key, value in values.items()) + "\n")


def _state(domain: Record) -> str:
    return "running" if domain["running"] else "shut off"


def _number(domain: Record) -> str:
    return str(domain["id"]) if domain["running"] else "-"


def _dominfo(_: Call, name: str, domain: Record) -> Answer:
    root = ET.fromstring(domain["xml"])  # noqa: S314 - root's own
    return _table(
        {
            "Id": _number(domain),
            "Name": name,
            "UUID": root.findtext("uuid", ""),
            "State": _state(domain),
            "CPU(s)": root.findtext("vcpu", ""),
            "Max memory": f"{root.findtext('memory', '')} KiB",
            "Used memory": f"{root.findtext('currentMemory', '')} KiB",
            "Persistent": "yes",
            "Autostart": "enable" if domain["autostart"] else "disable",
        }
    )


def _net_info(_: Call, name: str, network: Record) -> Answer:
    bridge = ET.fromstring(network["xml"]).find("bridge")  # noqa: S314 - root's own
    return _table(
        {
            "Name": name,
            "UUID": _uuid(network),
            "Active": "yes" if network["active"] else "no",
            "Persistent": "yes",
            "Autostart": "yes" if network["autostart"] else "no",
            "Bridge": "" if bridge is None else bridge.get("name", ""),
        }
    )


def _list(call: Call) -> Answer:
    domains = libvirt.domains(call.machine)
    shown = [name for name in sorted(domains) if call.has("--all") or domains[name]["running"]]
    if call.has("--name"):
        return Answer.out("".join(f"{name}\n" for name in shown) + "\n")
    width = max(len(name) for name in [*shown, "Name"]) + 3
    rows = [f" {'Id':<5}{'Name':<{width}}State", "-" * (width + 17)]
    rows += [f" {_number(domains[n]):<5}{n:<{width}}{_state(domains[n])}" for n in shown]
    return Answer.out("\n".join(rows) + "\n\n")


def _net_list(call: Call) -> Answer:
    networks = _NETWORK.all(call.machine)
    shown = [name for name in sorted(networks) if call.has("--all") or networks[name]["active"]]
    return Answer.out("\n".join([" Name", "-" * 52, *(f" {name}" for name in shown)]) + "\n\n")


def _dumpxml(call: Call, _: str, domain: Record) -> Answer:
    live = domain["running"] and not call.has("--inactive")
    return Answer.out(domain["running_xml" if live else "xml"] + "\n")


_COMMANDS: Mapping[str, Callable[[Call], Answer]] = {
    "autostart": _named(_DOMAIN, _autostart(_DOMAIN)),
    "define": _define(_DOMAIN),
    "destroy": _named(_DOMAIN, _end("destroy", "destroyed")),
    "dominfo": _named(_DOMAIN, _dominfo),
    "domstate": _named(_DOMAIN, lambda _c, _n, one: Answer.out(f"{_state(one)}\n\n")),
    "domuuid": _named(_DOMAIN, lambda _c, _n, one: Answer.out(f"{_uuid(one)}\n\n")),
    "dumpxml": _named(_DOMAIN, _dumpxml),
    "list": _list,
    "shutdown": _named(_DOMAIN, _end("shutdown", "is being shutdown")),
    "start": _named(_DOMAIN, _start),
    "undefine": _named(_DOMAIN, _undefine),
    "uri": lambda _: Answer.out("qemu:///system\n\n"),
    "net-autostart": _named(_NETWORK, _autostart(_NETWORK)),
    "net-define": _define(_NETWORK),
    "net-destroy": _named(_NETWORK, _switch("destroy", "destroyed", on=False)),
    "net-dumpxml": _named(_NETWORK, lambda _c, _n, one: Answer.out(one["xml"] + "\n")),
    "net-info": _named(_NETWORK, _net_info),
    "net-list": _net_list,
    "net-start": _named(_NETWORK, _switch("start", "started", on=True)),
    "net-undefine": _named(_NETWORK, _forget),
    "net-uuid": _named(_NETWORK, lambda _c, _n, one: Answer.out(f"{_uuid(one)}\n\n")),
}
