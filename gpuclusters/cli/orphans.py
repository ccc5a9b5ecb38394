"""Providers that outlive a killed engine: found by the engine's address, at which nobody answers any more.

An engine gives each provider its address as the last argument. Ours end with it; plugins of Pulumi
ask for it every five minutes (`sdk/go/pulumi/provider/main.go`), and go on with what they were doing.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath

import psutil

from gpuclusters.cli.state_locks import BACKEND_VARIABLE
from gpuclusters.cli.unfinished import Orphan

_MODULES = ("gpuclusters.providers.", "engine.stand_ins.")
_PLUGIN = "pulumi-resource-"
_LOOK_SECONDS = 0.5
"""Between two looks: an engine that ends in good order ends its providers within that."""
_END_SECONDS = 180.0
"""For what a provider does when it is told to end, like having Helm write down that its release failed."""


def orphans(project: Path, env: Mapping[str, str]) -> list[Orphan]:
    """Providers of this project and its backend whose engine is gone; those of others are left alone."""
    found = {one.pid: one for one in _look(project, env)}
    if found:
        time.sleep(_LOOK_SECONDS)
    return [one for one in _look(project, env) if found.get(one.pid) == one]


def end(orphan: Orphan) -> None:
    """Tell it to end, and wait until it has; one that does not is killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(orphan.pid)
        if process.create_time() != orphan.began:
            return
        process.terminate()
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(_END_SECONDS)
            return
        process.kill()


def _look(project: Path, env: Mapping[str, str]) -> Iterator[Orphan]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            words = process.cmdline()
            name = _provider(words)
            if (
                name
                and Path(process.cwd()) == project.resolve()
                and process.environ().get(BACKEND_VARIABLE) == env.get(BACKEND_VARIABLE)
                and _nobody_answers(words[-1])
            ):
                yield Orphan(process.pid, process.create_time(), name)


def _provider(words: Sequence[str]) -> str:
    """What a command line calls the provider that it is; empty if it is none."""
    for word in words[:-1]:
        name = PurePath(word).name
        if name.startswith(_PLUGIN) or word.startswith(_MODULES):
            return name
    return ""


def _nobody_answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return False
    try:
        socket.create_connection((host, int(port)), 1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
