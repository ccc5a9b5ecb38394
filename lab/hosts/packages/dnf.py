"""Stand-ins for `dnf`, `rpm` and `needs-restarting`: the packages of the RHEL family."""

import fnmatch

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import PackageGone, PackageManagerLocked
from lab.hosts.packages import archive
from lab.hosts.packages.catalogue import driver_packages
from lab.hosts.program import program

_LOCKED = (
    "Waiting for process with pid 1193 to finish.\nError: Failed to obtain rpm transaction "
    "lock. Another transaction is in progress."
)


@program(
    "dnf",
    on="rocky",
    flags="-y -q --allowerasing",
    values="--setopt",
    root="Error: This command has to be run with superuser privileges (under the root user on most systems).",
)
def dnf(call: Call) -> Answer:
    """`dnf install|remove`, `dnf module enable|reset`, `dnf versionlock add|delete|list`."""
    act = _VERBS.get(call.verb)
    if act is None:
        raise RefusedError(f"No such command: {call.verb}. Please use /usr/bin/dnf --help")
    if call.faults.first(PackageManagerLocked):
        raise RefusedError(_LOCKED)
    return act(call, call.words[1:])


def _remove(call: Call, names: list[str]) -> Answer:
    archive.remove(call.machine, names)
    return Answer.out("Complete!")


def _install(call: Call, names: list[str]) -> Answer:
    installed = call.machine.packages
    new: dict[str, str] = {}
    for name in names:
        found = _found(call, name)
        if not found:
            raise RefusedError(f"Error: Unable to find a match: {name}")
        new |= {n: version for n, version in found.items() if installed.get(n) != version}
    locked = [name for name in new if name in call.machine.held and name in installed]
    if locked:
        raise RefusedError(f"Error: Unable to find a match: {locked[0]} (excluded by versionlock)")
    archive.install(call.machine, new)
    return Answer.out("Complete!" if new else "Nothing to do.\nComplete!")


def _found(call: Call, wanted: str) -> dict[str, str]:
    """A package by `NAME` or `NAME-VERSION*`; of the driver's those from the stream that is enabled."""
    for name, version in archive.plain(call.machine.system):
        if wanted in {name, f"{name}-{version}"}:
            return {name: version}
    if any(wanted.startswith(fault.name) for fault in call.faults.all(PackageGone)):
        return {}
    stream = call.machine.state.get("streams", {}).get("nvidia-driver", "")
    for package in driver_packages(call.machine.system):
        full = f"{package.name}-{package.version}"
        fits = package.name == wanted or fnmatch.fnmatchcase(full, wanted)
        if fits and package.stream in {"", stream}:
            return dict.fromkeys((package.name, *package.brings), package.version)
    return {}


def _module(call: Call, words: list[str]) -> Answer:
    verb, *names = words or ("",)
    streams: dict[str, str] = call.machine.state.setdefault("streams", {})
    known = {package.stream for package in driver_packages(call.machine.system)}
    for name in names:
        module, _, stream = name.partition(":")
        if verb == "reset":
            streams.pop(module, None)
        elif module != "nvidia-driver" or stream not in known or call.faults.first(PackageGone):
            raise RefusedError(f"Error: Problems in request:\nmissing groups or modules: {name}")
        elif streams.setdefault(module, stream) != stream:
            raise RefusedError(
                "Error: It is not possible to switch enabled streams of a module unless explicitly "
                "enabled via configuration option module_stream_switch."
            )
    return Answer.out("Complete!")


def _versionlock(call: Call, words: list[str]) -> Answer:
    verb, *names = words or ("list",)
    if verb == "list":
        return Answer.out("\n".join(call.machine.held))
    if verb not in {"add", "delete"}:
        raise RefusedError(f"Error: versionlock: unknown verb {verb}")
    archive.hold(call.machine, names, on=verb == "add")
    return Answer.out("\n".join(names))


_VERBS = {
    "install": _install,
    "module": _module,
    "remove": _remove,
    "versionlock": _versionlock,
}


@program("needs-restarting", on="rocky", flags="-r")
def needs_restarting(call: Call) -> Answer:
    """`needs-restarting -r`: 1 when a newer kernel waits for a boot."""
    waits = call.machine.path("/run/reboot-required").exists()
    return Answer.out(
        "Reboot is required." if waits else "Reboot should not be necessary.", int(waits)
    )


@program("rpm", on="rocky sles", flags="-q -qa", values="--qf --queryformat")
def rpm(call: Call) -> Answer:
    """`rpm -q [--qf FORMAT] NAME…`, `rpm -qa --qf FORMAT PATTERN…`."""
    installed = call.machine.packages
    form = call.value("--qf", "--queryformat") or "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}\\n"
    if call.has("-qa"):
        fitting = [n for n in sorted(installed) if any(fnmatch.fnmatch(n, p) for p in call.words)]
        return Answer(stdout="".join(_shown(form, name, installed[name]) for name in fitting))
    said = [
        _shown(form, name, installed[name])
        if name in installed
        else f"package {name} is not installed\n"
        for name in call.words
    ]
    return Answer(sum(name not in installed for name in call.words), "".join(said))


def _shown(form: str, name: str, full: str) -> str:
    version, _, release = full.partition("-")
    fields = {"NAME": name, "VERSION-%{RELEASE": full, "VERSION": version, "RELEASE": release}
    for key, value in (*fields.items(), ("ARCH", "x86_64")):
        form = form.replace(f"%{{{key}}}", value)
    return form.replace("\\n", "\n")
