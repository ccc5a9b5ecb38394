"""Stand-ins for NVIDIA's commands: on a host that, as `caas` demands, has no driver they say so."""

from __future__ import annotations

import json
from typing import Any

import yaml

from lab.hosts.standins import nvidia_smi
from lab.hosts.standins.call import Answer, Call

_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


def smi(call: Call) -> Answer:
    """`nvidia-smi`: where GPUs belong to VFIO, whatever is asked fails like this."""
    if set(call.arguments) & {"-h", "--help"}:
        return Answer.out("NVIDIA System Management Interface (stand-in of a simulated host)")
    if call.machine.board.runs_the_driver:
        return nvidia_smi.run(call)
    return Answer.out(nvidia_smi.NO_DRIVER, nvidia_smi.NO_DRIVER_EXIT)


def ctk(call: Call) -> Answer:
    """`nvidia-ctk`: its version, `cdi list`, and the failure of `cdi generate` without a driver."""
    words = [argument for argument in call.arguments if argument not in {"--quiet", "-q"}]
    if words in (["--version"], ["-v"]):
        return Answer.out(
            "NVIDIA Container Toolkit CLI version 1.20.1\n(stand-in of a simulated host)"
        )
    if words == ["cdi", "list"]:
        return _list(call)
    if words[:2] == ["cdi", "generate"]:
        return Answer.error(
            'level=error msg="failed to generate CDI spec: failed to create device CDI specs: '
            'failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"',
            1,
        )
    return Answer.error(f"No help topic for '{' '.join(words)}'", 3)


def _list(call: Call) -> Answer:
    names: list[str] = []
    warnings = ""
    for directory in _CDI_DIRECTORIES:
        folder = call.machine.path(directory)
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix not in {".json", ".yaml"}:
                continue
            text = path.read_text()
            try:
                spec: Any = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
                names += [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
            except (ValueError, yaml.YAMLError, KeyError, TypeError) as error:
                shown = f"{directory}/{path.name}: {error}".replace('"', "'")
                warnings += f'level=warning msg="Refreshing the CDI registry: {shown}"\n'
    found = f'level=info msg="Found {len(set(names))} CDI devices"\n'
    return Answer(stdout="".join(f"{n}\n" for n in sorted(set(names))), stderr=warnings + found)
