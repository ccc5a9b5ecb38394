"""Stand-in for OpenSSH's client on a simulated host: reaches the service VM that runs there, nothing else.

Keys are real: the VM lets in whose private key belongs to a public one that its seed named, and shows the
host key of its seed, which is compared with the known-hosts file as OpenSSH does.

Sources: ssh(1) ("ssh exits with the exit status of the remote command or with 255 if an error occurred"),
ssh_config(5) for the options, sshd(8) for the format of known hosts; messages are OpenSSH 9's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.hosts import identity
from lab.hosts.call import Answer, Call
from lab.hosts.machine import Machine
from lab.hosts.service_vm import libvirt, service_vm_guest
from lab.hosts.service_vm.service_vm_guest import Guest, VmRefusesSsh

_ERROR = 255
_FLAGS = frozenset({"-n", "-q", "-T", "-x", "-a"})
"""Without meaning where there is neither terminal, agent nor display."""
_KNOWN_OPTIONS = frozenset(
    {
        "batchmode",
        "connecttimeout",
        "globalknownhostsfile",
        "identitiesonly",
        "loglevel",
        "passwordauthentication",
        "serveralivecountmax",
        "serveraliveinterval",
        "stricthostkeychecking",
        "userknownhostsfile",
    }
)
_USAGE = (
    "usage: ssh [-nqTxa] [-F configfile] [-i identity_file] [-l login_name] [-o option]\n"
    "           [-p port] destination command [argument ...]\n"
)


@dataclass(slots=True)
class _Wanted:
    user: str = "root"
    address: str = ""
    port: str = "22"
    identities: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    command: str = ""


def run(call: Call) -> Answer:
    if call.arguments == ("-V",):
        return Answer(stderr="OpenSSH_9.6p1 Ubuntu-3ubuntu13 (stand-in of a simulated host)\n")
    wanted = _parsed(call.arguments)
    if isinstance(wanted, Answer):
        return wanted
    where = f"ssh: connect to host {wanted.address} port {wanted.port}: "
    guest = _reachable(call.machine, wanted)
    if guest is None:
        return Answer.error(f"{where}No route to host", _ERROR)
    if wanted.port != "22" or call.faults.first(VmRefusesSsh):
        return Answer.error(f"{where}Connection refused", _ERROR)
    said = _host_key_refused(call, wanted, guest)
    if said:
        return Answer.error(f"{said}Host key verification failed.", _ERROR)
    denied = _account_refused(call, wanted, guest)
    if denied is not None:
        denied += f"{wanted.user}@{wanted.address}: Permission denied (publickey)."
        return Answer.error(denied, _ERROR)
    if not wanted.command:
        return Answer.error("this stand-in opens no terminal: name a command", _ERROR)
    return Answer(*guest.run(wanted.command))


def _parsed(arguments: tuple[str, ...]) -> _Wanted | Answer:
    wanted, words = _Wanted(), list(arguments)
    user = ""
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in _FLAGS:
            continue
        if flag not in {"-F", "-i", "-l", "-o", "-p"}:
            return Answer.error(f"unknown option -- {flag.lstrip('-')}\n{_USAGE}", _ERROR)
        if not words:
            return Answer.error(f"option requires an argument -- {flag[1]}\n{_USAGE}", _ERROR)
        value = words.pop(0)
        if flag == "-o":
            name, _, chosen = value.partition("=")
            if name.lower() not in _KNOWN_OPTIONS:
                return Answer.error(
                    f"command-line: line 0: Bad configuration option: {name}", _ERROR
                )
            wanted.options[name.lower()] = chosen
        elif flag == "-i":
            wanted.identities.append(value)
        elif flag == "-l":
            user = value
        elif flag == "-p":
            wanted.port = value
        elif value != "none":
            return Answer.error(f"Can't open user config file {value}: not simulated", _ERROR)
    if not words:
        return Answer.error(_USAGE, _ERROR)
    named, _, wanted.address = words.pop(0).rpartition("@")
    wanted.user = user or named or "root"
    # As ssh(1) says, the words of the command are put together with blanks and given to a shell.
    wanted.command = " ".join(words)
    return wanted


def _reachable(machine: Machine, wanted: _Wanted) -> Guest | None:
    """The VM at that address, if it runs on a network that is up: the host has no other neighbour."""
    guest = service_vm_guest.found(machine)
    if guest is None or guest.address != wanted.address:
        return None
    active = any(network["active"] for network in libvirt.networks(machine).values())
    return guest if active else None


def _host_key_refused(call: Call, wanted: _Wanted, guest: Guest) -> str:
    """What is said before the connection is given up; empty if the VM is the one that is known."""
    files = [wanted.options.get(f"{whose}knownhostsfile", "") for whose in ("user", "global")]
    lines = [
        line.split() for file in files for line in (call.machine.read_text(file) or "").splitlines()
    ]
    known = [
        " ".join(words[1:3]) for words in lines if words and wanted.address in words[0].split(",")
    ]
    if guest.host_key in known:
        return ""
    strict = wanted.options.get("stricthostkeychecking", "ask")
    if known:
        return (
            "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
            "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
        )
    if strict in {"no", "off", "accept-new"}:
        return ""
    return (
        f"No ED25519 host key is known for {wanted.address} and you have requested strict checking.\n"
        if strict == "yes"
        else "\n"
    )


def _account_refused(call: Call, wanted: _Wanted, guest: Guest) -> str | None:
    """What is said of the keys that were offered in vain; None if one of them opens the account."""
    accepted = {" ".join(line.split()[:2]) for line in guest.accounts.get(wanted.user, ())}
    said = ""
    for name in wanted.identities:
        file = call.machine.path(name)
        if not file.is_file() or not call.is_root:
            said += f"Warning: Identity file {name} not accessible: No such file or directory.\n"
        elif file.stat().st_mode & 0o077:
            said += (
                f"Permissions for '{name}' are too open.\nLoad key \"{name}\": bad permissions\n"
            )
        else:
            try:
                offered = identity.public_key(file)
            except ValueError:
                said += f'Load key "{name}": error in libcrypto\n'
                continue
            if offered in accepted:
                return None
    return said
