"""Stand-in for `sysctl`: keeps values by itself, because the machine's own /proc/sys is not the host's."""

from __future__ import annotations

from lab.hosts.call import Answer, Call

_DEFAULTS = {
    "fs.inotify.max_user_instances": "128",
    "fs.inotify.max_user_watches": "65536",
    "kernel.apparmor_restrict_unprivileged_userns": "1",
    "net.ipv4.conf.default.rp_filter": "2",
    "net.ipv4.ip_unprivileged_port_start": "1024",
}


def run(call: Call) -> Answer:
    """`sysctl -n KEY…`, `sysctl -p FILE`, `sysctl --system`."""
    words = [argument for argument in call.arguments if not argument.startswith("-")]
    flags = {argument for argument in call.arguments if argument.startswith("-")}
    if flags & {"-p", "--load", "--system"}:
        if not call.is_root:
            return Answer.error("sysctl: permission denied on key", 255)
        folder = call.machine.path("/etc/sysctl.d")
        paths = words or [f"/etc/sysctl.d/{file.name}" for file in sorted(folder.glob("*.conf"))]
        return _load(call, paths)
    if flags - {"-n"}:
        return Answer.error(f"sysctl: invalid option -- '{sorted(flags)[0].lstrip('-')}'", 1)
    values = {**_DEFAULTS, **call.machine.state.get("sysctl", {})}
    unknown = [word for word in words if word not in values]
    if unknown:
        return Answer.error(f"sysctl: cannot stat /proc/sys/{unknown[0].replace('.', '/')}", 255)
    return Answer.out(
        "\n".join(values[w] if "-n" in flags else f"{w} = {values[w]}" for w in words)
    )


def _load(call: Call, paths: list[str]) -> Answer:
    values: dict[str, str] = call.machine.state.setdefault("sysctl", {})
    shown: list[str] = []
    for path in paths:
        text = call.machine.read_text(path)
        if text is None:
            return Answer.error(f'sysctl: cannot open "{path}": No such file or directory', 255)
        for line in text.splitlines():
            key, separator, value = (part.strip() for part in line.partition("="))
            if separator and not key.startswith(("#", ";")):
                values[key] = value
                shown.append(f"{key} = {value}")
    return Answer.out("\n".join(shown))
