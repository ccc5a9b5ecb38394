"""Stand-ins for NVIDIA's commands on a host that, as `caas` demands, has no NVIDIA driver."""

from __future__ import annotations

import json
from typing import Any

import yaml

from lab.hosts.standins.call import Answer, Call

_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
_NO_DRIVER_EXIT = 9
_CDI_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")


def smi(call: Call) -> Answer:
    """`nvidia-smi`: the GPUs belong to VFIO, so that whatever is asked fails like this."""
    if set(call.arguments) & {"-h", "--help"}:
        return Answer.out("NVIDIA System Management Interface (stand-in of a simulated host)")
    return Answer.out(_NO_DRIVER, _NO_DRIVER_EXIT)


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
