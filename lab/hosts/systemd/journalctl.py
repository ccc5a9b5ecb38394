"""Stand-in for `journalctl`: what units of this boot have said; and for `systemd-notify`."""

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.program import program
from lab.hosts.systemd import units
from lab.hosts.systemd.services import NOTIFY_VARIABLE


@program(
    "journalctl",
    flags="--user --no-pager -q --show-cursor -k",
    values="-u -n -o --after-cursor",
    unknown="journalctl: invalid option -- '{letters}'",
)
def journalctl(call: Call) -> Answer:
    """`journalctl -u UNIT [-n LINES] [-o cat] [--show-cursor | --after-cursor CURSOR]`."""
    wanted = [units.full_name(name) for name in call.given.values.get("-u", [])]
    if call.has("--user"):
        runtime = call.environment.get("XDG_RUNTIME_DIR", "").rpartition("/")[2]
        wanted = [f"{runtime}-{unit}" for unit in wanted]
    elif not call.is_root:
        return Answer(stderr="Hint: You are currently not seeing messages from other users.\n")
    cat = call.value("-o") == "cat"
    shown: list[str] = []
    for unit in wanted:
        call.control.services.real.collect(unit)
        path = units.log_path(call.machine, unit)
        said = path.read_text(errors="replace").splitlines() if path.exists() else []
        shown += said if cat else [f"{call.machine.name} {line}" for line in said]
    if call.has("--show-cursor"):
        return Answer.out(f"-- cursor: s=lab;i={len(shown)}")
    shown = shown[int((call.value("--after-cursor") or "").rpartition("i=")[2] or 0) :]
    shown = shown[-int(call.value("-n") or 0) :]
    return Answer.out("\n".join(shown or ([] if cat else ["-- No entries --"])))


@program("systemd-notify", flags="--ready")
def notify(call: Call) -> Answer:
    """`systemd-notify --ready`, from a service of `Type=notify`."""
    unit = call.environment.get(NOTIFY_VARIABLE)
    if unit is None:
        raise RefusedError("No status data could be sent: $NOTIFY_SOCKET was not set")
    call.control.services.said_ready(unit)
    return Answer()
