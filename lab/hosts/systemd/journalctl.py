"""Stand-in for `journalctl`: what units of this boot have said; and for `systemd-notify`."""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.systemd import units
from lab.hosts.systemd.services import NOTIFY_VARIABLE

_FLAGS = {"--user", "--no-pager", "-b", "-x", "-e", "-xe", "-q", "--quiet"}


def run(call: Call) -> Answer:
    """`journalctl -u UNIT [-n LINES] [-o cat] [--show-cursor | --after-cursor CURSOR]`."""
    wanted, lines, cat = list[str](), None, False
    show_cursor, skip = False, 0
    runtime = call.environment.get("XDG_RUNTIME_DIR", "").rpartition("/")[2]
    own = "--user" in call.arguments
    rest = list(call.arguments)
    while rest:
        argument = rest.pop(0)
        if argument in {"-u", "--unit", "-xeu"} and rest:
            wanted.append(units.full_name(rest.pop(0)))
        elif argument.startswith("--unit="):
            wanted.append(units.full_name(argument.partition("=")[2]))
        elif argument in {"-n", "--lines"} and rest:
            lines = int(rest.pop(0))
        elif argument in {"-o", "--output"} and rest:
            cat = rest.pop(0) == "cat"
        elif argument == "--show-cursor":
            show_cursor = True
        elif argument.startswith("--after-cursor="):
            skip = int(argument.rpartition("i=")[2] or 0)
        elif argument.startswith(("--output=", "-o")):
            cat = argument.endswith("cat")
        elif argument not in _FLAGS:
            return Answer.error(f"journalctl: invalid option -- '{argument.lstrip('-')}'", 1)
    if own:
        wanted = [f"{runtime}-{unit}" for unit in wanted]
    elif not call.is_root:
        return Answer(stderr="Hint: You are currently not seeing messages from other users.\n")
    shown: list[str] = []
    for unit in wanted or units.known(call.machine):
        call.control.services.real.collect(unit)
        path = units.log_path(call.machine, unit)
        said = path.read_text(errors="replace").splitlines() if path.exists() else []
        shown += said if cat else [f"{call.machine.name} {line}" for line in said]
    if show_cursor:
        return Answer.out(f"-- cursor: s=lab;i={len(shown)}")
    shown = shown[skip:]
    shown = shown[-lines:] if lines else shown
    return Answer.out("\n".join(shown or ([] if cat else ["-- No entries --"])))


def notify(call: Call) -> Answer:
    """`systemd-notify --ready`, from a service of `Type=notify`."""
    unit = call.environment.get(NOTIFY_VARIABLE)
    if unit is None:
        return Answer.error("No status data could be sent: $NOTIFY_SOCKET was not set", 1)
    if "--ready" in call.arguments:
        call.control.services.said_ready(unit)
    return Answer()
