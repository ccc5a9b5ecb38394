"""`gpu-clusters verify`: try what the cluster's type promises, and keep the evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from gpuclusters.cli import verify_bundle, verify_caas, verify_rke2, verify_usernetes
from gpuclusters.cli.errors import RunError, WrongOptionError
from gpuclusters.cli.progress import steps
from gpuclusters.cli.project import Project
from gpuclusters.cli.stack_config import read_valid
from gpuclusters.config.rke2_cluster import Rke2Config
from gpuclusters.config.usernetes import UsernetesConfig
from gpuclusters.core.converge import time_of_day
from gpuclusters.core.errors import AdapterError
from gpuclusters.proof.evidence import About, Evidence

check = verify_bundle.check


def run(
    project: Project,
    stack: str,
    *,
    folder: Path,
    kubeconfig: Path | None,
    api: str | None,
    tokens: Sequence[str],
    level: str | None = None,
    as_json: bool = False,
) -> int:
    """Attack a caas cluster, or prove the GPUs of another type's; 0 if it holds, else 1.

    Args:
        project: of the stack.
        stack: its name.
        folder: where the evidence is kept.
        kubeconfig: of an administrator; the lab has one.
        api: caas: address of the public API.
        tokens: caas: `TENANT=FILE`.
        level: rke2: up to which level, usernetes: up to which rung; the configuration's by default.
        as_json: print the evidence itself, for programs, and nothing else.

    Raises:
        UsageError: an option is missing, wrong, or of another cluster type.
        RunError: the cluster cannot be asked.
    """
    section = read_valid(project, stack).section
    _refuse_foreign(section, api=api, tokens=tokens, level=level)

    def about(api_server: str, remarks: Sequence[str]) -> About:
        return About(
            cluster=section.name,
            stack=stack,
            at=time_of_day(),
            program=version("gpu-clusters"),
            api_server=api_server,
            remarks=tuple(remarks),
        )

    found: Evidence
    try:
        with steps(Console(stderr=True, highlight=False), silent=as_json) as say:
            say(f"running the checks of {section.name}")
            if isinstance(section, Rke2Config):
                found = verify_rke2.run(project, section, about, kubeconfig=kubeconfig, level=level)
            elif isinstance(section, UsernetesConfig):
                found = verify_usernetes.run(
                    project, stack, section, about, kubeconfig=kubeconfig, level=level
                )
            else:
                found = verify_caas.run(
                    project, section, about, kubeconfig=kubeconfig, api=api, tokens=tokens
                )
    except AdapterError as error:
        raise RunError(str(error)) from error
    _tell(found, folder, as_json=as_json)
    return 0 if found.holds else 1


def _tell(found: Evidence, folder: Path, *, as_json: bool) -> None:
    console = Console(highlight=False)
    path = verify_bundle.keep(found, folder)
    if as_json:
        console.print_json(json.dumps(found.document()))
        return
    verify_bundle.show(found, console)
    beside = ", ".join(path.with_suffix(suffix).name for suffix in (".md", ".sha256"))
    console.print(f"evidence: {path}, {beside}", soft_wrap=True)
    colour = "green" if found.holds else "red"
    console.print(f"[bold {colour}]{found.verdict}[/]", soft_wrap=True)


def _refuse_foreign(
    section: object, *, api: str | None, tokens: Sequence[str], level: str | None
) -> None:
    """An option of another cluster type would be ignored; that is said instead."""
    if isinstance(section, Rke2Config | UsernetesConfig):
        if api is not None or tokens:
            kind = "an rke2" if isinstance(section, Rke2Config) else "a usernetes"
            raise WrongOptionError(
                f"--api and --token are of caas clusters; this stack is {kind} one"
            )
    elif level is not None:
        raise WrongOptionError(
            "--level is of rke2 and usernetes clusters; this stack is a caas one"
        )
