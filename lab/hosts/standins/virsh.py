"""Stand-in for `virsh`: domains with their states; one is the service VM of the fabric manager."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

from lab.hosts.faults import Faults
from lab.hosts.machine import Machine
from lab.hosts.standins.call import Answer, Call
from lab.hosts.standins.fabric import Fabric

SERVICE_VM = "fabric-manager"
"""The virtual machine that owns the NVSwitches and runs the fabric manager."""

_Domain = dict[str, Any]


def run(call: Call) -> Answer:
    """Answer like `virsh`."""
    words = list(call.arguments)
    if words in (["--version"], ["-v"]):
        return Answer.out("10.0.0")
    while words and words[0] in {"-q", "--quiet", "-c", "--connect"}:
        words = words[2:] if words[0] in {"-c", "--connect"} else words[1:]
    if not words:
        return Answer.error("error: this stand-in has no interactive mode; give a command", 1)
    if words[0] not in _COMMANDS:
        return Answer.error(f"error: unknown command: '{words[0]}'", 1)
    if not call.is_root:
        return Answer.error(
            "error: failed to connect to the hypervisor\nerror: Failed to connect socket to "
            "'/var/run/libvirt/libvirt-sock': Permission denied",
            1,
        )
    return _COMMANDS[words[0]](call, words[1:])


def is_running(machine: Machine, name: str) -> bool:
    """Whether a domain runs."""
    domain = _domains(machine).get(name)
    return domain is not None and bool(domain["running"])


def _domains(machine: Machine) -> dict[str, _Domain]:
    found: dict[str, _Domain] = machine.state.setdefault("domains", {})
    if not found and "domains_made" not in machine.state:
        machine.state["domains_made"] = True
        xml = _service_vm_xml(machine)
        found[SERVICE_VM] = {"running": True, "autostart": True, "id": 1, "xml": xml}
    return found


def _service_vm_xml(machine: Machine) -> str:
    """A minimal domain with every function that has to be passed through together."""
    devices = ""
    for device in machine.board.devices:
        if device.module is not None or device.is_bridge:
            continue
        domain, bus, rest = device.address.split(":")
        slot, _, function = rest.partition(".")
        devices += (
            "    <hostdev mode='subsystem' type='pci' managed='yes'>\n      <source>\n"
            f"        <address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' "
            f"function='0x{function}'/>\n      </source>\n    </hostdev>\n"
        )
    return (
        f"<domain type='kvm'>\n  <name>{SERVICE_VM}</name>\n"
        "  <memory unit='GiB'>4</memory>\n  <vcpu placement='static'>2</vcpu>\n"
        "  <os firmware='efi'>\n    <type arch='x86_64' machine='q35'>hvm</type>\n  </os>\n"
        f"  <devices>\n{devices}  </devices>\n</domain>\n"
    )


def _list(call: Call, words: list[str]) -> Answer:
    unknown = set(words) - {"--all", "--name", "--inactive"}
    if unknown:
        return Answer.error(f"error: command 'list' doesn't support option {min(unknown)}", 1)
    shown = {
        name: domain
        for name, domain in sorted(_domains(call.machine).items())
        if "--all" in words or domain["running"] != ("--inactive" in words)
    }
    if "--name" in words:
        return Answer.out("".join(f"{name}\n" for name in shown) + "\n")
    width = max([len(name) for name in shown] + [len("Name")])
    rows = [f" {'Id':<5}{'Name':<{width + 3}}State", "-" * (width + 20)]
    for name, domain in shown.items():
        number = str(domain["id"]) if domain["running"] else "-"
        rows.append(f" {number:<5}{name:<{width + 3}}{_state(domain)}")
    return Answer.out("\n".join(rows) + "\n\n")


def _state(domain: _Domain) -> str:
    return "running" if domain["running"] else "shut off"


def _named(act: Callable[[Call, str, _Domain], Answer]) -> Callable[[Call, list[str]], Answer]:
    """A command on one domain."""

    def find(call: Call, words: list[str]) -> Answer:
        names = [word for word in words if not word.startswith("-")]
        options = [word for word in words if word.startswith("-")]
        if options:
            return Answer.error(f"error: unsupported option '{options[0]}'", 1)
        if len(names) != 1:
            return Answer.error("error: command requires <domain> option", 1)
        domain = _domains(call.machine).get(names[0])
        if domain is None:
            return Answer.error(f"error: failed to get domain '{names[0]}'", 1)
        return act(call, names[0], domain)

    return find


def _start(call: Call, name: str, domain: _Domain) -> Answer:
    if domain["running"]:
        return Answer.error("error: Domain is already active", 1)
    problem = _not_viable(call.machine, domain["xml"])
    if problem:
        return Answer.error(f"error: Failed to start domain '{name}'\nerror: {problem}", 1)
    numbers = [d["id"] for d in _domains(call.machine).values()]
    domain.update(running=True, id=max(numbers) + 1)
    if name == SERVICE_VM:
        _fabric_manager_boots(call.machine, call.faults)
    return _changed(call, name, "start", f"Domain '{name}' started")


def _fabric_manager_boots(machine: Machine, faults: Faults) -> None:
    Fabric(machine, faults).started()


def _not_viable(machine: Machine, xml: str) -> str | None:
    """Why VFIO would refuse the domain's devices: absent, or a group with a foreign endpoint."""
    present = {device.address: device for device in machine.board.devices}
    for address in _addresses(xml):
        device = present.get(address)
        if device is None:
            return (
                f"Device {address} not found: could not access "
                f"/sys/bus/pci/devices/{address}/config: No such file or directory"
            )
        group = f"/sys/kernel/iommu_groups/{device.iommu_group}/devices"
        for entry in sorted(machine.path(group).iterdir()):
            driver = machine.path(f"{group}/{entry.name}/driver")
            bound = driver.name if driver.exists() else None
            if bound not in {"vfio-pci", None} and not present[entry.name].is_bridge:
                return (
                    f"internal error: vfio {address}: group {device.iommu_group} is not viable\n"
                    "Please ensure all devices within the iommu_group are bound to their vfio bus "
                    "driver."
                )
    return None


def _addresses(xml: str) -> list[str]:
    # The document was written by the owner of this machine, who may do anything here anyway.
    sources = ET.fromstring(xml).iterfind(".//hostdev/source/address")  # noqa: S314
    found: list[str] = []
    for source in sources:
        number = {key: int(source.get(key, "0"), 16) for key in ("domain", "bus", "slot")}
        function = int(source.get("function", "0"), 16)
        address = f"{number['domain']:04x}:{number['bus']:02x}:{number['slot']:02x}.{function}"
        found.append(address)
    return found


def _stop(verb: str, said: str) -> Callable[[Call, str, _Domain], Answer]:
    def act(call: Call, name: str, domain: _Domain) -> Answer:
        if not domain["running"]:
            return Answer.error(
                f"error: Failed to {verb} domain '{name}'\n"
                "error: Requested operation is not valid: domain is not running",
                1,
            )
        domain["running"] = False
        return _changed(call, name, verb, f"Domain '{name}' {said}")

    return act


def _changed(call: Call, name: str, action: str, said: str) -> Answer:
    call.machine.note("domain", action=action, domain=name)
    return Answer.out(f"{said}\n\n")


def _autostart(call: Call, name: str, domain: _Domain) -> Answer:
    domain["autostart"] = True
    return _changed(call, name, "autostart", f"Domain '{name}' marked as autostarted")


def _undefine(call: Call, name: str, domain: _Domain) -> Answer:
    if not domain["running"]:
        del _domains(call.machine)[name]
    return _changed(call, name, "undefine", f"Domain '{name}' has been undefined")


def _define(call: Call, words: list[str]) -> Answer:
    if len(words) != 1:
        return Answer.error("error: command 'define' requires <file> option", 1)
    path = words[0] if words[0].startswith("/") else f"{call.cwd}/{words[0]}"
    xml = call.machine.read_text(path)
    if xml is None:
        return Answer.error(f"error: Failed to open file '{words[0]}': No such file", 1)
    try:
        name = ET.fromstring(xml).findtext("name")  # noqa: S314
        _addresses(xml)
    except (ET.ParseError, ValueError) as error:
        text = f"error: Failed to define domain from {words[0]}\nerror: (domain_definition) {error}"
        return Answer.error(text, 1)
    if not name:
        return Answer.error("error: XML error: domain name is missing", 1)
    domain = _domains(call.machine).setdefault(
        name, {"running": False, "id": 0, "autostart": False}
    )
    domain["xml"] = xml
    return _changed(call, name, "define", f"Domain '{name}' defined from {words[0]}")


_COMMANDS: dict[str, Callable[[Call, list[str]], Answer]] = {
    "autostart": _named(_autostart),
    "define": _define,
    "destroy": _named(_stop("destroy", "destroyed")),
    "domstate": _named(lambda _call, _name, domain: Answer.out(f"{_state(domain)}\n\n")),
    "dumpxml": _named(lambda _call, _name, domain: Answer.out(domain["xml"] + "\n")),
    "list": _list,
    "shutdown": _named(_stop("shutdown", "is being shutdown")),
    "start": _named(_start),
    "undefine": _named(_undefine),
}
