"""`doctor`: the stack's configuration, its state, and the secrets that open everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from gpuclusters.cli import state_locks
from gpuclusters.cli.diagnosis import Diagnosis, failure, warning, well
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project, Stack
from gpuclusters.cli.state_locks import Fate
from gpuclusters.config.cluster import ClusterConfig, needed
from gpuclusters.config.fault import render_path
from gpuclusters.config.stack import NAMESPACE, StackConfig, check_stack_file

CONFIGURATION, BACKEND, SECRETS = "configuration", "backend", "secrets"
_SECONDS = 60
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
    if isinstance(checked, list):
        return None, [
            failure(CONFIGURATION, f"{render_path(one.path)}: {one.problem}", one.code, one.remedy)
            for one in checked
        ]
    found = [well(CONFIGURATION, f"Pulumi.{stack}.yaml ({checked.cluster_type})")]
    found += [
        warning(CONFIGURATION, f"{render_path(one.path)}: {one.problem}", one.code, one.remedy)
        for one in checked.warnings
    ]
    return checked, found


def backend(stack: Stack) -> Iterator[Diagnosis]:
    """Whether the state can be had, is free, and nothing of an interrupted run is left in it."""
    folder = state_locks.folder_of(state_locks.backend_url(stack.project.folder, stack.env))
    if folder is not None and not folder.exists():
        yield well(BACKEND, f"no state in {folder} yet; `up` makes it")
        return
    known, said = stack.ask("stack", "ls", "--json", seconds=_SECONDS)
    if known is None:
        yield failure(BACKEND, f"the state cannot be had: {said}", "doctor.state-unreachable")
        return
    if not any(entry["name"].split("/")[-1] == stack.stack for entry in known):
        yield well(BACKEND, f"reachable; there is no stack {stack.stack} yet")
        return
    for lock, fate in (
        state_locks.locks(folder, stack.project.name, stack.stack) if folder is not None else ()
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
    folder = state_locks.folder_of(state_locks.backend_url(stack.project.folder, stack.env))
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


def missing(stack: Stack, section: ClusterConfig, secrets: StackSecrets) -> Iterator[Diagnosis]:
    """Secrets without which `up` is refused."""
    for key, why in needed(section).items() if secrets.readable else ():
        if key not in secrets.values:
            fix = f"`pulumi config set --secret {key} --stack {stack.stack} < FILE`"
            yield failure(SECRETS, f"{key} is not set, {why}", "doctor.secret-missing", fix)
