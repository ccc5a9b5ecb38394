"""Stand-in for `nvidia-ctk` on a host that runs NVIDIA's driver.

After NVIDIA's container toolkit: `cdi generate` (`--output`, `--device-name-strategy` with index and uuid by
default, NVIDIA_CTK_CDI_OUTPUT_FILE_PATH, NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES), `cdi list`,
`config --in-place --set KEY=VALUE`, `runtime configure --runtime=docker --cdi.enabled`.
"""

from __future__ import annotations

import json
import re

import yaml

from lab.hosts.call import Answer, Call
from lab.hosts.machine import Machine
from lab.hosts.nvidia import cdi, gpu_uuids
from lab.hosts.usernetes.rootless_faults import CdiStale, CdiWithoutUuids, LegacyRuntime

CONFIGURATION = "/etc/nvidia-container-runtime/config.toml"
DEFAULT = """#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false

[nvidia-container-cli]
environment = []
#no-cgroups = false

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
"""
_PACKAGE = "nvidia-container-toolkit-base"


def version(machine: Machine) -> str:
    """The toolkit that is installed: `1.20.0-1` is 1.20.0."""
    packages: dict[str, str] = machine.state.get("packages", {})
    return (packages.get(_PACKAGE) or packages.get("nvidia-container-toolkit", "")).partition("-")[
        0
    ]


def run(call: Call) -> Answer:
    words = [word for word in call.arguments if word not in {"--quiet", "-q", "--debug", "-d"}]
    if words in (["--version"], ["-v"]):
        return Answer.out(f"NVIDIA Container Toolkit CLI version {version(call.machine)}")
    if words[:2] == ["cdi", "generate"]:
        return _generate(call, words[2:])
    if words[:2] == ["cdi", "list"]:
        return list_devices(call)
    if words[:1] == ["config"]:
        return _config(call, words[1:])
    if words[:2] == ["runtime", "configure"]:
        return _runtime(call, words[2:])
    return Answer.error(f"No help topic for '{' '.join(words)}'", 3)


def _generate(call: Call, words: list[str]) -> Answer:
    options = _options(words)
    output = options.get("output") or call.environment.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", "")
    said = options.get("device-name-strategy") or call.environment.get(
        "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES", "index,uuid"
    )
    uuids = gpu_uuids.served(call.machine, call.faults)
    if not uuids:
        return Answer.error(
            'level=error msg="failed to generate CDI spec: failed to create device CDI specs: '
            'failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"',
            1,
        )
    strategies = [one for one in said.split(",") if one]
    if call.faults.first(CdiWithoutUuids):
        strategies = ["index"]
    spec = cdi.specification(uuids, strategies)
    if not output:
        return Answer.out(yaml.safe_dump(spec, sort_keys=False))
    if not call.is_root:
        return Answer.error(f'level=error msg="open {output}: permission denied"', 1)
    if call.faults.first(CdiStale):
        gone = [gpu_uuids.gpu_uuid(f"{call.machine.name}-before", n) for n in range(len(uuids))]
        spec = cdi.specification(gone, strategies)
    cdi.write(call.machine, output, spec)
    call.machine.note("cdi", path=output, devices=len(spec["devices"]))
    return Answer(stderr=f'level=info msg="Generated CDI spec with version {spec["cdiVersion"]}"\n')


def list_devices(call: Call) -> Answer:
    """`nvidia-ctk cdi list`."""
    names, problems = cdi.devices(call.machine, cdi.DIRECTORIES)
    warnings = "".join(
        f'level=warning msg="Refreshing the CDI registry: {problem}"\n' for problem in problems
    )
    found = f'level=info msg="Found {len(names)} CDI devices"\n'
    return Answer(stdout="".join(f"{name}\n" for name in names), stderr=warnings + found)


def _config(call: Call, words: list[str]) -> Answer:
    options = _options(words)
    text = call.machine.read_text(CONFIGURATION) or DEFAULT
    if "in-place" not in options:
        return Answer.out(text)
    if not call.is_root:
        return Answer.error(f'level=error msg="open {CONFIGURATION}: permission denied"', 1)
    for setting in options.get("set", "").split("\n"):
        key, _, value = setting.partition("=")
        section, _, name = key.rpartition(".")
        text = _set(text, section, name, value)
    fault = call.faults.first(LegacyRuntime)
    if fault is not None:
        text = _set(text, "nvidia-container-runtime", "mode", "legacy")
        if fault.no_cgroups:
            text = _set(text, "nvidia-container-cli", "no-cgroups", "true")
    file = call.machine.path(CONFIGURATION)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return Answer()


def _set(text: str, section: str, name: str, value: str) -> str:
    """A key of a table of TOML, uncommented where it was a comment."""
    shown = value if value in {"true", "false"} or value.isdecimal() else json.dumps(value)
    lines, current, done = list[str](), "", False
    for line in text.splitlines():
        if line.startswith("["):
            if current == section and not done:
                lines.append(f"{name} = {shown}")
                done = True
            current = line.strip("[] ")
        if current == section and re.match(rf"#?\s*{re.escape(name)}\s*=", line):
            if not done:
                lines.append(f"{name} = {shown}")
            done = True
            continue
        lines.append(line)
    if not done:
        lines += [*([f"[{section}]"] if current != section else []), f"{name} = {shown}"]
    return "\n".join(lines) + "\n"


def _runtime(call: Call, words: list[str]) -> Answer:
    options = _options(words)
    if options.get("runtime") != "docker":
        return Answer.error("unrecognized runtime: only docker on a simulated host", 1)
    path = options.get("config", "/etc/docker/daemon.json")
    body = json.loads(call.machine.read_text(path) or "{}")
    body.setdefault("runtimes", {})["nvidia"] = {"args": [], "path": "nvidia-container-runtime"}
    if "cdi.enabled" in options:
        body.setdefault("features", {})["cdi"] = True
    if "set-as-default" in options:
        body["default-runtime"] = "nvidia"
    file = call.machine.path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(body, indent=4) + "\n")
    return Answer(stderr='level=info msg="Wrote updated config; restart the docker daemon"\n')


def _options(words: list[str]) -> dict[str, str]:
    """`--key=value`, `--key value` of those that have one, `--key`; `--set` may be there many times."""
    with_value = {"output", "set", "device-name-strategy", "runtime", "config", "format"}
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        key, separator, value = rest.pop(0).lstrip("-").partition("=")
        if not separator and key in with_value and rest:
            value = rest.pop(0)
        found[key] = f"{found[key]}\n{value}" if key == "set" and key in found else value
    return found
