"""Stand-in for `virsh`: domains and networks with their states. Source: virsh(1) and its messages."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

from lab.hosts.call import Answer, Call
from lab.hosts.machine import Machine
from lab.hosts.service_vm import libvirt, virsh_networks
from lab.hosts.service_vm.libvirt import Record
from lab.hosts.service_vm.service_vm_guest import LibvirtDown, VmIgnoresShutdown

"""The virtual machine that owns the NVSwitches and runs the fabric manager."""

_CONNECT = {"-c", "--connect"}


def run(call: Call) -> Answer:
    words = list(call.arguments)
    if words in (["--version"], ["-v"]):
        return Answer.out("10.0.0")
    while words and words[0] in {"-q", "--quiet", *_CONNECT}:
        words = words[2:] if words[0] in _CONNECT else words[1:]
    if not words:
        return Answer.error("error: this stand-in has no interactive mode; give a command", 1)
    command = _COMMANDS.get(words[0]) or virsh_networks.COMMANDS.get(words[0])
    if command is None:
        return Answer.error(f"error: unknown command: '{words[0]}'", 1)
    if not call.is_root:
        return _not_connected("Permission denied")
    if call.faults.first(LibvirtDown):
        return _not_connected("No such file or directory")
    answer = command(call, words[1:])
    # vsh ends every command with an empty line, one that failed too.
    return answer if answer.exit == 0 else replace(answer, stdout=answer.stdout or "\n")


def _not_connected(why: str) -> Answer:
    return Answer.error(
        "error: failed to connect to the hypervisor\nerror: Failed to connect socket to "
        f"'/var/run/libvirt/libvirt-sock': {why}",
        1,
    )


def is_running(machine: Machine, name: str) -> bool:
    return libvirt.is_running(machine, name)


def _list(call: Call, words: list[str]) -> Answer:
    unknown = set(words) - {"--all", "--name", "--inactive"}
    if unknown:
        return Answer.error(f"error: command 'list' doesn't support option {min(unknown)}", 1)
    shown = {
        name: domain
        for name, domain in sorted(libvirt.domains(call.machine).items())
        if "--all" in words or domain["running"] != ("--inactive" in words)
    }
    if "--name" in words:
        return Answer.out("".join(f"{name}\n" for name in shown) + "\n")
    width = max([len(name) for name in shown] + [len("Name")])
    rows = [f" {'Id':<5}{'Name':<{width + 3}}State", "-" * (width + 20)]
    for name, domain in shown.items():
        rows.append(f" {_number(domain):<5}{name:<{width + 3}}{_state(domain)}")
    return Answer.out("\n".join(rows) + "\n\n")


def _state(domain: Record) -> str:
    return "running" if domain["running"] else "shut off"


def _number(domain: Record) -> str:
    return str(domain["id"]) if domain["running"] else "-"


_Act = Callable[[Call, str, Record, set[str]], Answer]


def _named(act: _Act, *allowed: str) -> Callable[[Call, list[str]], Answer]:
    def find(call: Call, words: list[str]) -> Answer:
        names = [word for word in words if not word.startswith("-")]
        options = {word for word in words if word.startswith("-")}
        if options - set(allowed):
            return Answer.error(f"error: unsupported option '{min(options - set(allowed))}'", 1)
        if len(names) != 1:
            return Answer.error("error: command requires <domain> option", 1)
        domain = libvirt.domains(call.machine).get(names[0])
        if domain is None:
            return Answer.error(f"error: failed to get domain '{names[0]}'", 1)
        return act(call, names[0], domain, options)

    return find


def _start(call: Call, name: str, domain: Record, _: set[str]) -> Answer:
    if domain["running"]:
        return Answer.error("error: Domain is already active", 1)
    problem = libvirt.start(call.machine, call.faults, name)
    if problem:
        return Answer.error(f"error: Failed to start domain '{name}'\nerror: {problem}", 1)
    return _changed(call, name, "start", f"Domain '{name}' started")


def _destroy(call: Call, name: str, domain: Record, _: set[str]) -> Answer:
    if not domain["running"]:
        return _not_running("destroy", name)
    libvirt.stop(call.machine, call.faults, name)
    return _changed(call, name, "destroy", f"Domain '{name}' destroyed")


def _shutdown(call: Call, name: str, domain: Record, _: set[str]) -> Answer:
    if not domain["running"]:
        return _not_running("shutdown", name)
    if not call.faults.first(VmIgnoresShutdown):
        libvirt.stop(call.machine, call.faults, name)
    return _changed(call, name, "shutdown", f"Domain '{name}' is being shutdown")


def _not_running(verb: str, name: str) -> Answer:
    return Answer.error(
        f"error: Failed to {verb} domain '{name}'\n"
        "error: Requested operation is not valid: domain is not running",
        1,
    )


def _changed(call: Call, name: str, action: str, said: str) -> Answer:
    call.machine.note("domain", action=action, domain=name)
    return Answer.out(f"{said}\n\n")


def _autostart(call: Call, name: str, domain: Record, options: set[str]) -> Answer:
    domain["autostart"] = "--disable" not in options
    word = "marked" if domain["autostart"] else "unmarked"
    return _changed(call, name, "autostart", f"Domain '{name}' {word} as autostarted")


def _undefine(call: Call, name: str, domain: Record, options: set[str]) -> Answer:
    nvram = ET.fromstring(domain["xml"]).find("os/nvram")  # noqa: S314 - root's own
    if nvram is not None and not options & {"--nvram", "--keep-nvram"}:
        return Answer.error(
            f"error: Failed to undefine domain '{name}'\nerror: Requested operation is not valid: "
            "cannot undefine domain with nvram",
            1,
        )
    if not domain["running"]:
        del libvirt.domains(call.machine)[name]
    return _changed(call, name, "undefine", f"Domain '{name}' has been undefined")


def _define(call: Call, words: list[str]) -> Answer:
    words = [word for word in words if word != "--validate"]
    root = virsh_networks.read(call, words, "define", "domain")
    if isinstance(root, Answer):
        return root
    failed = f"error: Failed to define domain from {words[0]}\nerror: "
    name = root.findtext("name")
    if not name:
        return Answer.error("error: XML error: domain name is missing", 1)
    known = libvirt.domains(call.machine)
    domain = known.get(name)
    if domain is not None:
        uuid = ET.fromstring(domain["xml"]).findtext("uuid")  # noqa: S314 - as above
        if root.findtext("uuid") != uuid:
            text = f"operation failed: domain '{name}' already exists with uuid {uuid}"
            return Answer.error(failed + text, 1)
    domain = known.setdefault(name, {"running": False, "id": 0, "autostart": False})
    domain["xml"] = libvirt.complete(root)
    return _changed(call, name, "define", f"Domain '{name}' defined from {words[0]}")


def _dumpxml(_call: Call, _name: str, domain: Record, options: set[str]) -> Answer:
    live = domain["running"] and "--inactive" not in options
    return Answer.out(domain["running_xml" if live else "xml"] + "\n")


def _dominfo(_call: Call, name: str, domain: Record, _: set[str]) -> Answer:
    root = ET.fromstring(domain["xml"])  # noqa: S314 - root's own
    values = {
        "Id": _number(domain),
        "Name": name,
        "UUID": root.findtext("uuid", ""),
        "OS Type": "hvm",
        "State": _state(domain),
        "CPU(s)": root.findtext("vcpu", ""),
        "Max memory": f"{root.findtext('memory', '')} KiB",
        "Used memory": f"{root.findtext('currentMemory', '')} KiB",
        "Persistent": "yes",
        "Autostart": "enable" if domain["autostart"] else "disable",
        "Managed save": "no",
        "Security model": "apparmor",
        "Security DOI": "0",
    }
    return Answer.out("".join(f"{f'{key}:':<16}{value}\n" for key, value in values.items()) + "\n")


def _domuuid(_call: Call, _name: str, domain: Record, _: set[str]) -> Answer:
    return Answer.out(f"{ET.fromstring(domain['xml']).findtext('uuid', '')}\n\n")  # noqa: S314


def _domifaddr(_call: Call, _name: str, domain: Record, _: set[str]) -> Answer:
    # Without DHCP there is no lease to show.
    head = " Name       MAC address          Protocol     Address\n"
    return Answer.out(f"{head}{'-' * 79}\n\n" if domain["running"] else "")


_COMMANDS: dict[str, Callable[[Call, list[str]], Answer]] = {
    "autostart": _named(_autostart, "--disable"),
    "define": _define,
    "destroy": _named(_destroy, "--graceful"),
    "domid": _named(lambda _c, _n, domain, _o: Answer.out(f"{_number(domain)}\n\n")),
    "domifaddr": _named(_domifaddr),
    "dominfo": _named(_dominfo),
    "domstate": _named(lambda _c, _n, domain, _o: Answer.out(f"{_state(domain)}\n\n")),
    "domuuid": _named(_domuuid),
    "dumpxml": _named(_dumpxml, "--inactive"),
    "list": _list,
    "shutdown": _named(_shutdown),
    "start": _named(_start),
    "undefine": _named(_undefine, "--nvram", "--keep-nvram"),
    "uri": lambda _call, _words: Answer.out("qemu:///system\n\n"),
}
