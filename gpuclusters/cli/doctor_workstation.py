"""`doctor`: this computer, its engine and its lab."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version

from gpuclusters.cli import engine as engines
from gpuclusters.cli import lab_nodes
from gpuclusters.cli.diagnosis import Diagnosis, failure, warning, well
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config.stack import StackConfig
from lab import lifecycle, parts, spec
from lab.tools.cache import ToolCache
from lab.tools.catalogue import TOOLS, host_platform

AREA, LAB = "workstation", "lab"
GIB = 2**30
NEEDED_BYTES = 2 * GIB
"""What a lab with its tools takes when the tools need not be built."""
_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("pulumi", "pulumi-kubernetes", "pulumi-command")
_PLUGINS = ("kubernetes", "command")
_LAB_TOOLS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_PROGRAM_SECONDS = 60


def workstation(
    project: Project, engine: engines.Engine | UsageError, *, in_lab: bool | None
) -> Iterator[Diagnosis]:
    """Python, project, engine, Helm. `in_lab`: None if the configuration does not say."""
    python = sys.version.split()[0]
    if sys.version_info < _OLDEST_PYTHON:
        yield failure(AREA, f"Python {python}", "install Python 3.11 or newer; `make clean up`")
    else:
        yield well(AREA, f"Python {python}")
    yield from _packages()
    if isinstance(engine, UsageError):
        yield failure(AREA, "there is no engine", str(engine))
    elif engine.kind is engines.Kind.PULUMI:
        yield from _pulumi(engine)
    else:
        yield well(AREA, "embedded engine, with stand-ins for provider plugins")
        if in_lab is False:
            yield warning(
                AREA,
                f"machines that matter, and no Pulumi ({engine.reason})",
                "install Pulumi: https://www.pulumi.com/docs/install",
            )
        yield from _helm()
    yield well(AREA, f"project {project.folder}")


def _packages() -> Iterator[Diagnosis]:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if found:
        yield well(AREA, ", ".join(found))
    if missing:
        yield failure(AREA, f"not installed: {', '.join(missing)}", "run `make clean up`")


def _pulumi(engine: engines.Engine) -> Iterator[Diagnosis]:
    said, problem = _run(engine, "version")
    if problem:
        yield failure(AREA, f"`{engine.command[0]} version`: {problem}", "install Pulumi again")
        return
    yield well(AREA, f"Pulumi {said.strip()} ({engine.reason})")
    said, problem = _run(engine, "plugin", "ls", "--json")
    try:
        plugins = {entry["name"]: str(entry["version"]) for entry in json.loads(said or "[]")}
    except (ValueError, KeyError, TypeError):
        problem, plugins = "its answer is no list of plugins", {}
    if problem:
        yield warning(AREA, f"`pulumi plugin ls`: {problem}", "`pulumi plugin install` by hand")
        return
    missing = [name for name in _PLUGINS if name not in plugins]
    if missing:
        yield well(
            AREA, f"plugins to come: {', '.join(missing)} (Pulumi installs them when needed)"
        )
    for name in _PLUGINS:
        wanted = version(f"pulumi-{name}")
        if name in plugins and plugins[name].removeprefix("v") != wanted:
            yield warning(
                AREA,
                f"plugin {name} {plugins[name]}, and the program is written for {wanted}",
                f"`pulumi plugin install resource {name} v{wanted}`",
            )


def _run(engine: engines.Engine, *args: str) -> tuple[str, str]:
    """What the engine prints, and why it did not."""
    try:
        done = subprocess.run(
            [*engine.command, *args],
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    if done.returncode:
        return "", done.stderr.strip()[:200] or f"exit status {done.returncode}"
    return done.stdout, ""


def _helm() -> Iterator[Diagnosis]:
    path = shutil.which("helm")
    cached = ToolCache().find(TOOLS["helm"], host_platform()) if path is None else None
    if path or cached:
        yield well(AREA, "helm")
    else:
        yield warning(AREA, "no helm, which the embedded engine calls for charts", "install Helm 3")


def lab(project: Project, env: Mapping[str, str], config: StackConfig) -> Iterator[Diagnosis]:
    """Whether the lab runs, its tools are there, and it has room; what its nodes are."""
    folder = project.lab_folder
    free = shutil.disk_usage(folder if folder.exists() else project.folder).free
    if free < NEEDED_BYTES:
        yield failure(
            LAB, f"{free // GIB} GiB free in {folder}", f"make room: {NEEDED_BYTES // GIB} GiB"
        )
    missing = _missing_tools(env)
    if missing:
        yield warning(
            LAB,
            f"not there yet: {', '.join(missing)}",
            "`gpu-clusters lab start` fetches or builds them, which takes minutes once",
        )
    else:
        yield well(LAB, "all tools are there")
    yield from _nodes(project, config)
    try:
        found = parts.status(folder)
    except lifecycle.LabError as error:
        yield failure(LAB, str(error), "`make down`, then `make up`")
        return
    if not found:
        yield warning(LAB, "it was not made yet", "run `make up`")
        return
    down = [part.name for part in found if not part.running]
    if down:
        yield failure(LAB, f"does not run: {', '.join(down)}", "run `gpu-clusters lab start`")
    else:
        yield well(LAB, f"{len(found)} parts run in {folder}, {free // GIB} GiB free")


def _nodes(project: Project, config: StackConfig) -> Iterator[Diagnosis]:
    choice = lab_nodes.decide(project, config)
    if choice.refused:
        text = f"nodes are to be {config.lab.nodes.value}, and {choice.why}"
        yield failure(LAB, text, "what it says, or write `nodes: auto`")
        return
    # Why it is so is history once the lab is there.
    there = spec.known(project.lab_folder) is not None
    yield well(LAB, lab_nodes.described(config.section, choice, briefly=there))
    if text := lab_nodes.kata(config.section, choice.kind):
        yield well(LAB, text)


def _missing_tools(env: Mapping[str, str]) -> list[str]:
    cache, platform = ToolCache(), host_platform()
    return [
        tool.name
        for tool in (TOOLS[name] for name in _LAB_TOOLS)
        if shutil.which(tool.name, path=env.get("PATH")) is None
        and cache.find(tool, platform) is None
    ]
