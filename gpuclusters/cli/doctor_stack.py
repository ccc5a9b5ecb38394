"""`doctor`: the stack's configuration, its state, and the secrets that open everything else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from gpuclusters.cli import engine as engines
from gpuclusters.cli import state_locks
from gpuclusters.cli.diagnosis import Diagnosis, failure, warning, well
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project
from gpuclusters.cli.unfinished import Fate
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.fault import render_path
from gpuclusters.config.loader import needed_secrets
from gpuclusters.config.stack import NAMESPACE, StackConfig
from gpuclusters.config.stack_file import check_stack_file

CONFIGURATION, BACKEND, SECRETS = "configuration", "backend", "secrets"
_SECONDS = 60
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Stack:
    """One stack and the engine that knows it."""

    project: Project
    name: str
    engine: engines.Engine
    env: Mapping[str, str]

    def ask(self, *args: str) -> tuple[Any, str]:
        """The JSON that the engine prints, and its last words if it failed (then None)."""
        try:
            done = subprocess.run(
                [*self.engine.command, *args],
                cwd=self.project.folder,
                env={**self.env, "PULUMI_SKIP_UPDATE_CHECK": "1"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, f"no answer within {_SECONDS} s"
        words = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = (words[-1] if words else f"exit status {done.returncode}")[:_LONGEST]
        if done.returncode:
            return None, said.removeprefix("error: ")
        try:
            return json.loads(done.stdout), ""
        except ValueError:
            return None, f"`{args[0]}` printed no JSON"


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
        return None, [failure(CONFIGURATION, str(error), fix, error.error_id)]
    if isinstance(checked, list):
        return None, [
            failure(CONFIGURATION, f"{render_path(one.path)}: {one.problem}", one.remedy, one.code)
            for one in checked
        ]
    found = [well(CONFIGURATION, f"Pulumi.{stack}.yaml ({checked.cluster_type})")]
    found += [
        warning(CONFIGURATION, f"{render_path(one.path)}: {one.problem}", one.remedy, one.code)
        for one in checked.warnings
    ]
    return checked, found


def backend(stack: Stack) -> Iterator[Diagnosis]:
    """Whether the state can be had, is free, and nothing of an interrupted run is left in it."""
    folder = state_locks.folder_of(state_locks.backend_url(stack.project.folder, stack.env))
    if folder is not None and not folder.exists():
        yield well(BACKEND, f"no state in {folder} yet; `up` makes it")
        return
    known, said = stack.ask("stack", "ls", "--json")
    if known is None:
        yield failure(
            BACKEND,
            f"the state cannot be had: {said}",
            f"`pulumi login`, or set {state_locks.BACKEND_VARIABLE}",
            "doctor.state-unreachable",
        )
        return
    if not any(entry["name"].split("/")[-1] == stack.name for entry in known):
        yield well(BACKEND, f"reachable; there is no stack {stack.name} yet")
        return
    for lock, fate in (
        state_locks.locks(folder, stack.project.name, stack.name) if folder is not None else ()
    ):
        dead = fate is Fate.DEAD
        yield warning(
            BACKEND,
            f"locked by {lock.holder}" + (", which runs no more" if dead else ""),
            "`gpu-clusters up` lets go of it"
            if dead
            else f"wait for it; if it is dead: `pulumi cancel --stack {stack.name}`",
            "doctor.state-locked",
        )
    yield from _state(stack)


def _state(stack: Stack) -> Iterator[Diagnosis]:
    state, said = stack.ask("stack", "export", "--stack", stack.name)
    if state is None:
        yield failure(
            BACKEND,
            f"the state cannot be read: {said}",
            "`pulumi state repair`",
            "doctor.state-unreadable",
        )
        return
    deployment = state.get("deployment") or {}
    resources = len(deployment.get("resources") or ())
    yield well(BACKEND, f"{resources} resources in the state")
    pending = deployment.get("pending_operations") or []
    if pending:
        names = ", ".join(
            f"{op['type']} {op['resource']['urn'].split('::')[-1]}" for op in pending[:3]
        )
        yield warning(
            BACKEND,
            f"{len(pending)} operations of an interrupted run are pending ({names})",
            "`gpu-clusters up` finds out what became of them",
            "doctor.operations-pending",
        )


def secrets(stack: Stack) -> tuple[StackSecrets, list[Diagnosis]]:
    """The stack's secrets, opened; never shown."""
    document = yaml.safe_load(stack.project.stack_file(stack.name).read_text(encoding="utf-8"))
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
    values, said = _asked(stack)
    if said:
        fix = (
            "set PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE"
            if salt
            else "log in to the service that holds the key"
        )
        return StackSecrets(readable=False), [
            failure(
                SECRETS,
                f"the stack's secrets cannot be opened: {said}",
                fix,
                "doctor.secrets-sealed",
            )
        ]
    names = ", ".join(sorted(sealed)) or "none set"
    return StackSecrets(values), [well(SECRETS, f"the passphrase fits, {names}" if salt else names)]


def missing(stack: Stack, section: ClusterConfig, secrets: StackSecrets) -> Iterator[Diagnosis]:
    """Secrets without which `up` is refused."""
    for key, why in needed_secrets(section).items() if secrets.readable else ():
        if key not in secrets.values:
            yield failure(
                SECRETS,
                f"{key} is not set, {why}",
                f"`pulumi config set --secret {key} --stack {stack.name} < FILE`",
                "doctor.secret-missing",
            )


def _asked(stack: Stack) -> tuple[dict[str, str], str]:
    """The secrets as the engine opens them, and why it cannot."""
    known, said = stack.ask("config", "--show-secrets", "--json", "--stack", stack.name)
    prefix = f"{NAMESPACE}:"
    return {
        key.removeprefix(prefix): str(entry["value"])
        for key, entry in (known or {}).items()
        if key.startswith(prefix) and entry.get("secret") and entry.get("value")
    }, said
