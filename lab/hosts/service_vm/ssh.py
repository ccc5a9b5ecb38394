"""Stand-in for OpenSSH's client on a simulated host: reaches the service VM that runs there, nothing else.

Keys are real: the VM lets in whose private key belongs to a public one that its seed named, and shows the
host key of its seed, which is compared with the known-hosts file as OpenSSH does.

Sources: ssh(1) ("ssh exits with the exit status of the remote command or with 255 if an error occurred"),
ssh_config(5) for the options, sshd(8) for the format of known hosts; messages are OpenSSH 9's.
"""

from lab.hosts import identity
from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import VmRefusesSsh
from lab.hosts.program import program
from lab.hosts.service_vm import libvirt, service_vm_guest
from lab.hosts.service_vm.service_vm_guest import Guest

_ERROR = 255
_KNOWN_OPTIONS = frozenset(
    {
        *("batchmode", "connecttimeout", "globalknownhostsfile", "identitiesonly", "loglevel"),
        *("passwordauthentication", "serveralivecountmax", "serveraliveinterval"),
        *("stricthostkeychecking", "userknownhostsfile"),
    }
)
_CHANGED = (
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n"
    "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\n"
)


@program(
    "ssh",
    flags="-n",
    values="-F -i -o -p",
    until_word=True,
    unknown="unknown option -- {letters}",
    unknown_exit=_ERROR,
)
def ssh(call: Call) -> Answer:
    if len(call.words) < len(("destination", "command")):
        raise RefusedError(
            "usage: ssh [-n] [-F none] [-i file] [-o option] [-p port] destination command", _ERROR
        )
    destination, *command = call.words
    user, _, address = destination.rpartition("@")
    options = _options(call)
    port = call.value("-p") or "22"
    where = f"ssh: connect to host {address} port {port}: "
    guest = service_vm_guest.found(call.machine)
    # The host has no other neighbour than a VM on a network that is up.
    up = any(network["active"] for network in libvirt.networks(call.machine).values())
    if guest is None or guest.address != address or not up:
        raise RefusedError(f"{where}No route to host", _ERROR)
    if port != "22" or call.faults.first(VmRefusesSsh):
        raise RefusedError(f"{where}Connection refused", _ERROR)
    said = _host_key_refused(call, options, guest)
    if said is not None:
        raise RefusedError(f"{said}Host key verification failed.", _ERROR)
    denied = _account_refused(call, user or "root", guest)
    if denied is not None:
        raise RefusedError(f"{denied}{destination}: Permission denied (publickey).", _ERROR)
    # As ssh(1) says, the words of the command are put together with blanks and given to a shell.
    return Answer(*guest.run(" ".join(command)))


def _options(call: Call) -> dict[str, str]:
    found: dict[str, str] = {}
    for option in call.given.values.get("-o", []):
        name, _, value = option.partition("=")
        if name.lower() not in _KNOWN_OPTIONS:
            raise RefusedError(f"command-line: line 0: Bad configuration option: {name}", _ERROR)
        found[name.lower()] = value
    return found


def _host_key_refused(call: Call, options: dict[str, str], guest: Guest) -> str | None:
    """What is said before the connection is given up; None if the VM is the one that is known."""
    files = [options.get(f"{whose}knownhostsfile", "") for whose in ("user", "global")]
    lines = [
        line.split() for file in files for line in (call.machine.read_text(file) or "").splitlines()
    ]
    known = [words[1:3] for words in lines if words and guest.address in words[0].split(",")]
    if guest.host_key.split() in known:
        return None
    if known:
        return _CHANGED
    if options.get("stricthostkeychecking") == "no":
        return None
    if options.get("stricthostkeychecking") == "yes":
        return f"No ED25519 host key is known for {guest.address} and you have requested strict checking.\n"
    return "\n"


def _account_refused(call: Call, user: str, guest: Guest) -> str | None:
    """What is said of the keys that were offered in vain; None if one of them opens the account."""
    accepted = {" ".join(line.split()[:2]) for line in guest.accounts.get(user, ())}
    said = ""
    for name in call.given.values.get("-i", []):
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
