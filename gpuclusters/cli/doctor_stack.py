"""`doctor`: this computer, its engine and lab; the configuration, the state and its secrets."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points, version

import yaml

from gpuclusters.cli import engine as engines
from gpuclusters.cli import unfinished
from gpuclusters.cli.diagnosis import Diagnosis, failure, shortened, warning, well
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.lab_entry import Lab, described, lab_of
from gpuclusters.cli.project import Project, Stack
from gpuclusters.cli.unfinished import Fate
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import ClusterConfig, Need, needed, placeholders, uses
from gpuclusters.config.fault import render_path
from gpuclusters.config.secrets import wrong
from gpuclusters.config.stack import NAMESPACE, StackConfig, check_stack_file
from gpuclusters.core.errors import code_of
from gpuclusters.core.finding import Finding

AREA, LAB = "workstation", "lab"
GIB = 2**30
NEEDED_BYTES = 2 * GIB
"""What a lab with its tools takes when the tools need not be built."""
_PACKAGES = ("pulumi", "pulumi-kubernetes", "pulumi-command")
_PLUGINS = ("kubernetes", "command")
_SECONDS = 60


def workstation(
    project: Project, engine: engines.Engine | UsageError, *, in_lab: bool | None
) -> Iterator[Diagnosis]:
    """Python, project, engine, Helm. `in_lab`: None if the configuration does not say."""
    yield well(AREA, f"Python {platform.python_version()}")
    yield well(AREA, ", ".join(f"{name} {version(name)}" for name in _PACKAGES))
    if isinstance(engine, UsageError):
        yield failure(AREA, "there is no engine", engine.error_id, str(engine))
    elif engine.kind is engines.Kind.PULUMI:
        yield from _pulumi(Stack(project, "", engine, os.environ))
    else:
        yield well(AREA, "embedded engine, with stand-ins for provider plugins")
        if in_lab is False:
            text = f"real machines, and no Pulumi ({engine.reason}): install it before you run `up`"
            yield warning(AREA, text, "doctor.no-pulumi")
        if shutil.which("helm") or entry_points(group="gpu_clusters_engine.programs"):
            yield well(AREA, "helm")
        else:
            text = "no helm, which the embedded engine calls for charts"
            yield warning(AREA, text, "doctor.no-helm")
    yield well(AREA, f"project {project.folder}")


def _pulumi(stack: Stack) -> Iterator[Diagnosis]:
    engine = stack.engine
    said, problem = stack.told("version", seconds=_SECONDS)
    if problem:
        text = f"`{engine.command[0]} version`: {problem}"
        yield failure(AREA, text, "doctor.pulumi-broken")
        return
    yield well(AREA, f"Pulumi {said.strip()} ({engine.reason})")
    listed, problem = stack.ask("plugin", "ls", "--json", seconds=_SECONDS)
    try:
        plugins = {entry["name"]: str(entry["version"]) for entry in listed or ()}
    except (KeyError, TypeError):
        problem, plugins = "its answer is no list of plugins", {}
    if problem:
        yield warning(AREA, f"`pulumi plugin ls`: {problem}", "doctor.plugins-unknown")
        return
    if missing := [name for name in _PLUGINS if name not in plugins]:
        names = ", ".join(missing)
        yield well(AREA, f"plugins to come: {names} (Pulumi installs them when needed)")
    for name in _PLUGINS:
        wanted = version(f"pulumi-{name}")
        if name in plugins and plugins[name].removeprefix("v") != wanted:
            text = f"plugin {name} {plugins[name]}, and the program is written for {wanted}"
            fix = f"`pulumi plugin install resource {name} v{wanted}`"
            yield warning(AREA, text, "doctor.plugin-version", fix)


def lab(project: Project, env: Mapping[str, str], config: StackConfig) -> Iterator[Diagnosis]:
    """Whether the lab runs, its tools are there, and it has room; what its nodes are."""
    folder = project.lab_folder
    free = shutil.disk_usage(folder if folder.exists() else project.folder).free
    if free < NEEDED_BYTES:
        fix = f"make room: {NEEDED_BYTES // GIB} GiB"
        yield failure(LAB, f"{free // GIB} GiB free in {folder}", "doctor.disk-space", fix)
    the_lab = lab_of(project)
    missing = the_lab.missing_tools(env.get("PATH"))
    if missing:
        yield warning(LAB, f"not there yet: {', '.join(missing)}", "doctor.lab-tools")
    else:
        yield well(LAB, "all tools are there")
    yield from _nodes(the_lab, config)
    try:
        found = the_lab.status()
    except the_lab.error as error:
        yield failure(LAB, str(error), code_of(error), "`make down`, then `make up`")
        return
    if not found:
        yield warning(LAB, "it was not made yet", "doctor.lab-not-made")
        return
    down = [part["name"] for part in found if not part["running"]]
    if down:
        yield failure(LAB, f"does not run: {', '.join(down)}", "doctor.lab-down")
    else:
        yield well(LAB, f"{len(found)} parts run in {folder}, {free // GIB} GiB free")


def _nodes(the_lab: Lab, config: StackConfig) -> Iterator[Diagnosis]:
    choice = the_lab.choice(config.lab.nodes.value)
    if choice.refused:
        text = f"nodes are to be {config.lab.nodes.value}, and {choice.why}"
        yield failure(LAB, text, "lab.nodes", "what it says, or write `nodes: auto`")
        return
    # Why it is so is history once the lab is there.
    there = the_lab.kind() is not None
    yield well(LAB, described(config.section, choice, briefly=there))
    if isinstance(config.section, CaasConfig):
        yield well(LAB, the_lab.kata(choice.kind))


CONFIGURATION, BACKEND, SECRETS = "configuration", "backend", "secrets"
_PASSPHRASE = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


@dataclass(frozen=True, slots=True)
class StackSecrets:
    """Secrets of the stack by key, and whether they could be read at all."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    readable: bool = True


def configuration(project: Project, stack: str) -> tuple[StackConfig | None, list[Diagnosis]]:
    """The configuration if it is right, and everything that is wrong with it."""
    try:
        checked = check_stack_file(project.stack_file(stack))
    except UsageError as error:
        fix = "`pulumi stack init`, or name another with --stack"
        return None, [failure(CONFIGURATION, str(error), error.error_id, fix)]

    def said(kind: Callable[[str, str, str, str], Diagnosis], one: Finding) -> Diagnosis:
        text = f"{render_path(one.path)}: {one.problem}"
        return kind(CONFIGURATION, text, one.code, one.remedy)

    if isinstance(checked, list):
        return None, [said(failure, one) for one in checked]
    found = [well(CONFIGURATION, f"Pulumi.{stack}.yaml ({checked.cluster_type})")]
    found += [said(warning, one) for one in checked.warnings]
    if made_up := [render_path(one.path) for one in placeholders(checked.section)]:
        text = f"placeholders of the examples, which `up` refuses: {shortened(made_up)}"
        found.append(failure(CONFIGURATION, text, "config.placeholder"))
    return checked, found


def backend(stack: Stack) -> Iterator[Diagnosis]:
    """Whether the state can be had, is free, and nothing of an interrupted run is left in it."""
    folder = unfinished.folder_of(unfinished.backend_url(stack.project.folder, stack.env))
    if folder is not None and not folder.exists():
        yield well(BACKEND, f"no state in {folder} yet; `up` makes it")
        return
    known, said = stack.ask("stack", "ls", "--json", seconds=_SECONDS)
    if known is None:
        yield failure(BACKEND, f"cannot read the state: {said}", "doctor.state-unreachable")
        return
    if not any(entry["name"].split("/")[-1] == stack.stack for entry in known):
        yield well(BACKEND, f"reachable; there is no stack {stack.stack} yet")
        return
    for lock, fate in (
        unfinished.locks(folder, stack.project.name, stack.stack) if folder is not None else ()
    ):
        dead = fate is Fate.DEAD
        wait = f"wait for it; if it is dead: `pulumi cancel --stack {stack.stack}`"
        fix = "`gpu-clusters up` lets go of it" if dead else wait
        text = f"locked by {lock.holder}" + (", which runs no more" if dead else "")
        yield warning(BACKEND, text, "doctor.state-locked", fix)
    yield from _state(stack)


def _state(stack: Stack) -> Iterator[Diagnosis]:
    state, said = stack.ask("stack", "export", "--stack", stack.stack, seconds=_SECONDS)
    if state is None:
        yield failure(BACKEND, f"the state cannot be read: {said}", "doctor.state-unreadable")
        return
    deployment = state.get("deployment") or {}
    resources = len(deployment.get("resources") or ())
    yield well(BACKEND, f"{resources} resources in the state")
    pending = deployment.get("pending_operations") or []
    if pending:
        first = (f"{op['type']} {op['resource']['urn'].split('::')[-1]}" for op in pending[:3])
        text = f"{len(pending)} operations of an interrupted run are pending ({', '.join(first)})"
        yield warning(BACKEND, text, "doctor.operations-pending")


def secrets(stack: Stack) -> tuple[StackSecrets, list[Diagnosis]]:
    """The stack's secrets, opened; never shown."""
    document = yaml.safe_load(stack.project.stack_file(stack.stack).read_text(encoding="utf-8"))
    sealed = {
        key.removeprefix(f"{NAMESPACE}:"): value["secure"]
        for key, value in (document.get("config") or {}).items()
        if isinstance(value, Mapping) and set(value) == {"secure"}
    }
    salt = document.get("encryptionsalt")
    if not salt and not sealed:
        return StackSecrets(), [well(SECRETS, "none in the stack file")]
    folder = unfinished.folder_of(unfinished.backend_url(stack.project.folder, stack.env))
    if folder is not None and not folder.exists():
        return StackSecrets(readable=False), [well(SECRETS, "not tried: there is no state yet")]
    words = ("config", "--show-secrets", "--json", "--stack", stack.stack)
    known, said = stack.ask(*words, seconds=_SECONDS)
    if said:
        service = "log in to the service that holds the key"
        fix = f"set {' or '.join(_PASSPHRASE)}" if salt else service
        said = f"the stack's secrets cannot be opened: {said}"
        found = failure(SECRETS, said, "doctor.secrets-sealed", fix)
        return StackSecrets(readable=False), [found]
    values = {
        key.removeprefix(f"{NAMESPACE}:"): str(entry["value"])
        for key, entry in (known or {}).items()
        if key.startswith(f"{NAMESPACE}:") and entry.get("secret") and entry.get("value")
    }
    names = ", ".join(sorted(sealed)) or "none set"
    return StackSecrets(values), [well(SECRETS, f"the passphrase fits, {names}" if salt else names)]


def unfit(stack: Stack, section: ClusterConfig, secrets: StackSecrets) -> Iterator[Diagnosis]:
    """Secrets for which `up` would be refused: those that are missing, and those of no use."""
    if not secrets.readable:
        return
    set_it = f"`pulumi config set --secret {{}} --stack {stack.stack} < FILE`"
    for key, why in needed(section).items():
        if key not in secrets.values:
            text = f"{key} is not set, {why}"
            yield failure(SECRETS, text, "doctor.secret-missing", set_it.format(key))
    for key, use in uses(section).items():
        read = use.need in (Need.MUST, Need.MAY) and key in secrets.values
        if read and (found := wrong(section, key, secrets.values[key])):
            yield failure(SECRETS, f"{key} {found.problem}", found.code, set_it.format(key))
