"""What NVIDIA's container runtime adds to a container, by mode: read from the configuration that it wrote.

legacy adds a hook, by which `nvidia-container-cli` makes the rest when the container starts; cdi adds what a
specification says; auto decides. Sources: NVIDIA container toolkit, `internal/modifier`; OCI runtime
specification, `config.md`.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from gpuclusters.core.facts import Facts

Object = Mapping[str, Any]
Added = Mapping[str, list[tuple[str, str]]]
"""By mode that worked: what was added, each with what it is."""
_PROGRAMS = {"nvidia-cdi-hook": 1, "nvidia-ctk": 2}
"""NVIDIA's programs that run hooks, and how many words come before a hook's name. Either runs any of them."""
_LD_CACHE = "update-ldcache"
KINDS = ("device", "mount", "environment", "hook", "ld cache")


class Mode(StrEnum):
    LEGACY = "legacy"
    CDI = "cdi"
    AUTO = "auto"


class Injected(Facts):
    """What the script prints."""

    runtime: str = ""
    """Its version; empty if there is none."""
    gpu: tuple[str, ...] = ()
    status: Mapping[str, int] = {}
    config: Mapping[str, str] = {}
    said: Mapping[str, str] = {}

    def added(self, before: Object) -> Added:
        """To a configuration."""
        worked = (mode for mode, status in self.status.items() if status == 0)
        known = set(_parts(before))
        return {
            mode: [one for one in _parts(json.loads(self.config[mode])) if one not in known]
            for mode in worked
        }


def container(gpus: str, capabilities: str) -> Object:
    """A container that asks for GPUs as images and the device plugin do, by variables."""
    return {
        "ociVersion": "1.0.2",
        "process": {
            "cwd": "/",
            "args": ["true"],
            "env": [
                "PATH=/usr/bin",
                f"NVIDIA_VISIBLE_DEVICES={gpus}",
                f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",
            ],
        },
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
        "linux": {},
    }


def _parts(config: Object) -> Iterator[tuple[str, str]]:
    linux, process = config.get("linux") or {}, config.get("process") or {}
    for device in linux.get("devices") or ():
        yield "device", device["path"]
    for mount in config.get("mounts") or ():
        yield "mount", mount["destination"]
    for variable in process.get("env") or ():
        yield "environment", variable
    for when, hooks in (config.get("hooks") or {}).items():
        for hook in hooks:
            words = hook.get("args") or [hook["path"]]
            named = words[_PROGRAMS.get(words[0], 0) :]
            yield "ld cache" if _LD_CACHE in words else "hook", f"{when}: {shlex.join(named)}"
