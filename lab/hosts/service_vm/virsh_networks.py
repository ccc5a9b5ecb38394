"""The commands of `virsh` about networks."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4
from xml.etree import ElementTree as ET

from lab.hosts.call import Answer, Call
from lab.hosts.service_vm import libvirt
from lab.hosts.service_vm.libvirt import Record


def read(call: Call, words: list[str], command: str, kind: str) -> ET.Element | Answer:
    """The document, or what virsh says when it is none.

    Args:
        call: the call of virsh.
        words: what follows the command, without its options: the file.
        command: `define` or `net-define`.
        kind: `domain` or `network`.
    """
    if len(words) != 1:
        return Answer.error(f"error: command '{command}' requires <file> option", 1)
    path = words[0] if words[0].startswith("/") else f"{call.cwd}/{words[0]}"
    xml = call.machine.read_text(path)
    if xml is None:
        return Answer.error(f"error: Failed to open file '{words[0]}': No such file", 1)
    try:
        return ET.fromstring(xml)  # noqa: S314 - root's own
    except ET.ParseError as error:
        failed = f"error: Failed to define {kind} from {words[0]}\nerror: "
        return Answer.error(f"{failed}({kind}_definition) {error}", 1)


_Act = Callable[[Call, str, Record], Answer]


def _named(act: _Act) -> Callable[[Call, list[str]], Answer]:
    def find(call: Call, words: list[str]) -> Answer:
        names = [word for word in words if not word.startswith("-")]
        if len(names) != 1:
            return Answer.error("error: command requires <network> option", 1)
        libvirt.domains(call.machine)  # a prepared machine has its network too
        network = libvirt.networks(call.machine).get(names[0])
        if network is None:
            return Answer.error(
                f"error: failed to get network '{names[0]}'\n"
                f"error: Network not found: no network with matching name '{names[0]}'",
                1,
            )
        return act(call, names[0], network)

    return find


def _define(call: Call, words: list[str]) -> Answer:
    root = read(call, words, "net-define", "network")
    if isinstance(root, Answer):
        return root
    failed = f"error: Failed to define network from {words[0]}\nerror: "
    name = root.findtext("name", "")
    known = libvirt.networks(call.machine)
    if name in known:
        uuid = _uuid_of(known[name])
        if uuid != root.findtext("uuid"):
            text = f"operation failed: network '{name}' already exists with uuid {uuid}"
            return Answer.error(failed + text, 1)
    if root.find("uuid") is None:
        ET.SubElement(root, "uuid").text = str(uuid4())
    if root.find("mac") is None:
        ET.SubElement(root, "mac", {"address": "52:54:00:fa:b0:01"})
    network = known.setdefault(name, {"active": False, "autostart": False})
    network["xml"] = libvirt.text(root)
    return _changed(call, name, "define", f"Network {name} defined from {words[0]}")


def _uuid_of(network: Record) -> str | None:
    return ET.fromstring(network["xml"]).findtext("uuid")  # noqa: S314 - root's own


def _start(call: Call, name: str, network: Record) -> Answer:
    if network["active"]:
        return Answer.error(
            f"error: Failed to start network {name}\n"
            "error: Requested operation is not valid: network is already active",
            1,
        )
    network["active"] = True
    return _changed(call, name, "start", f"Network {name} started")


def _destroy(call: Call, name: str, network: Record) -> Answer:
    if not network["active"]:
        return Answer.error(
            f"error: Failed to destroy network {name}\n"
            f"error: Requested operation is not valid: network '{name}' is not active",
            1,
        )
    network["active"] = False
    return _changed(call, name, "destroy", f"Network {name} destroyed")


def _autostart(call: Call, name: str, network: Record) -> Answer:
    network["autostart"] = True
    return _changed(call, name, "autostart", f"Network {name} marked as autostarted")


def _undefine(call: Call, name: str, _network: Record) -> Answer:
    del libvirt.networks(call.machine)[name]
    return _changed(call, name, "undefine", f"Network {name} has been undefined")


def _info(_call: Call, name: str, network: Record) -> Answer:
    bridge = ET.fromstring(network["xml"]).find("bridge")  # noqa: S314 - root's own
    values = {
        "Name": name,
        "UUID": _uuid_of(network) or "",
        "Active": "yes" if network["active"] else "no",
        "Persistent": "yes",
        "Autostart": "yes" if network["autostart"] else "no",
        "Bridge": "" if bridge is None else bridge.get("name", ""),
    }
    return Answer.out("".join(f"{f'{key}:':<16}{value}\n" for key, value in values.items()) + "\n")


def _list(call: Call, words: list[str]) -> Answer:
    rows = [" Name             State      Autostart   Persistent", "-" * 52]
    for name, network in sorted(libvirt.networks(call.machine).items()):
        if network["active"] or "--all" in words:
            state = "active" if network["active"] else "inactive"
            start = "yes" if network["autostart"] else "no"
            rows.append(f" {name:<17}{state:<11}{start:<12}yes")
    return Answer.out("\n".join(rows) + "\n\n")


def _changed(call: Call, name: str, action: str, said: str) -> Answer:
    call.machine.note("network", action=action, network=name)
    return Answer.out(f"{said}\n\n")


COMMANDS: dict[str, Callable[[Call, list[str]], Answer]] = {
    "net-autostart": _named(_autostart),
    "net-define": _define,
    "net-destroy": _named(_destroy),
    "net-dumpxml": _named(lambda _call, _name, network: Answer.out(network["xml"] + "\n")),
    "net-info": _named(_info),
    "net-list": _list,
    "net-start": _named(_start),
    "net-undefine": _named(_undefine),
    "net-uuid": _named(lambda _c, _n, network: Answer.out(f"{_uuid_of(network) or ''}\n\n")),
}
