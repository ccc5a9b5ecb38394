"""Stand-in for `nvidia-ctk`.

After NVIDIA's container toolkit: `cdi generate` (`--output`, `--device-name-strategy` with index and uuid by
default, NVIDIA_CTK_CDI_OUTPUT_FILE_PATH, NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES), `cdi list`,
`config --in-place --set KEY=VALUE`.
"""

import json
import re

import yaml

from lab.hosts.call import Answer, Call, RefusedError
from lab.hosts.faults import CdiStale, CdiWithoutUuids, LegacyRuntime
from lab.hosts.nvidia import cdi, driver
from lab.hosts.packages.scripts import TOOLKIT_CONFIGURATION, toolkit_default
from lab.hosts.program import STAND_IN, program

_PREPARED = "1.20.1"
"""On a machine that passes its GPUs on the toolkit is no package."""


def _version(call: Call) -> str:
    """The toolkit that is installed: `1.20.0-1` is 1.20.0."""
    names = ("nvidia-container-toolkit-base", "nvidia-container-toolkit")
    found = next(
        (call.machine.packages[name] for name in names if call.machine.has_package(name)), ""
    )
    return found.partition("-")[0] if call.machine.board.runs_the_driver else _PREPARED


@program(
    "nvidia-ctk",
    flags="--version --quiet --in-place",
    values="--output --device-name-strategy --set",
)
def ctk(call: Call) -> Answer:
    if call.has("--version"):
        return Answer.out(f"NVIDIA Container Toolkit CLI version {_version(call)}\n{STAND_IN}")
    match call.words:
        case ["cdi", "generate"]:
            return _generate(call)
        case ["cdi", "list"]:
            return _list(call)
        case ["config"]:
            return _config(call)
    raise RefusedError(f"No help topic for '{' '.join(call.words)}'", 3)


def _generate(call: Call) -> Answer:
    output = call.value("--output") or call.environment.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", "")
    said = call.value("--device-name-strategy") or call.environment.get(
        "NVIDIA_CTK_CDI_GENERATE_DEVICE_NAME_STRATEGIES", "index,uuid"
    )
    uuids = driver.uuids_served(call.machine, call.faults)
    if not uuids:
        raise RefusedError(
            'level=error msg="failed to generate CDI spec: failed to create device CDI specs: '
            'failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"'
        )
    strategies = ["index"] if call.faults.first(CdiWithoutUuids) else said.split(",")
    spec = cdi.specification(uuids, strategies)
    if not output:
        return Answer.out(yaml.safe_dump(spec, sort_keys=False))
    if not call.is_root:
        raise RefusedError(f'level=error msg="open {output}: permission denied"')
    if call.faults.first(CdiStale):
        gone = [driver.gpu_uuid(f"{call.machine.name}-before", n) for n in range(len(uuids))]
        spec = cdi.specification(gone, strategies)
    cdi.write(call.machine, output, spec)
    call.machine.note("cdi", path=output, devices=len(spec["devices"]))
    return Answer(stderr=f'level=info msg="Generated CDI spec with version {spec["cdiVersion"]}"\n')


def _list(call: Call) -> Answer:
    names, problems = cdi.devices(call.machine, cdi.DIRECTORIES)
    warnings = "".join(
        f'level=warning msg="Refreshing the CDI registry: {problem}"\n' for problem in problems
    )
    found = f'level=info msg="Found {len(names)} CDI devices"\n'
    return Answer(stdout="".join(f"{name}\n" for name in names), stderr=warnings + found)


def _config(call: Call) -> Answer:
    path = TOOLKIT_CONFIGURATION
    text = call.machine.read_text(path) or toolkit_default()
    if not call.has("--in-place"):
        return Answer.out(text)
    if not call.is_root:
        raise RefusedError(f'level=error msg="open {path}: permission denied"')
    settings = [one.partition("=") for one in call.given.values.get("--set", [])]
    changes = {key: value for key, _, value in settings}
    fault = call.faults.first(LegacyRuntime)
    if fault is not None:
        changes["nvidia-container-runtime.mode"] = "legacy"
        if fault.no_cgroups:
            changes["nvidia-container-cli.no-cgroups"] = "true"
    for key, value in changes.items():
        text = _set(text, *key.rpartition(".")[::2], value)
    call.machine.write(path, text)
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
