"""Stand-ins for `reboot` and `shutdown`: the simulated machine really goes down and comes back."""

from __future__ import annotations

from lab.hosts.call import Answer, Call

_NOW = {"now", "+0"}


def reboot(call: Call) -> Answer:
    """`reboot`: systemd's own, a word for `systemctl reboot`."""
    if set(call.arguments) - {"-f", "--force"}:
        return Answer.error(f"reboot: unrecognized option '{call.arguments[0]}'", 1)
    return _go(call, "reboot")


def shutdown(call: Call) -> Answer:
    """`shutdown -r now`; a machine that is only switched off would not come back here."""
    if "-r" not in call.arguments and "--reboot" not in call.arguments:
        return Answer.error("shutdown: only -r is available on a simulated host", 1)
    when = [word for word in call.arguments if not word.startswith("-")]
    if when and when[0] not in _NOW:
        return Answer.error(f"shutdown: {when[0]}: only now is available on a simulated host", 1)
    return _go(call, "shutdown")


def _go(call: Call, name: str) -> Answer:
    if not call.is_root:
        return Answer.error(
            f"Failed to set wall message, ignoring: Interactive authentication required.\n"
            f"Call to Reboot failed: Interactive authentication required. ({name})",
            1,
        )
    call.control.reboot()
    return Answer()
