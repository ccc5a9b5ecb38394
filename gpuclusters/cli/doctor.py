"""`gpu-clusters doctor`: what would be used, and what is missing, without changing anything."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from gpuclusters.cli import engine as engines
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project
from gpuclusters.cli.stack_config import read_valid, uses_lab

GIB = 2**30
NEEDED_BYTES = 2 * GIB
"""What a lab with its tools takes when the tools need not be built."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. A finding that is not good says what to do."""

    good: bool
    text: str


def _good(text: str) -> Finding:
    return Finding(good=True, text=text)


def _bad(text: str) -> Finding:
    return Finding(good=False, text=text)


def run(project: Project, stack: str) -> int:
    """Print all findings; 0 if all are good, else 1."""
    findings = list(_findings(project, stack))
    console = Console(highlight=False)
    for finding in findings:
        mark = "[green]ok  [/green]" if finding.good else "[red]fail[/red]"
        console.print(f"{mark} {finding.text}", soft_wrap=True)
    return 0 if all(finding.good for finding in findings) else 1


def _findings(project: Project, stack: str) -> Iterator[Finding]:
    yield _good(f"Python {sys.version.split()[0]}")
    yield _good(f"project {project.folder}")
    try:
        engine = engines.choose(may_fetch=False)
        yield _good(engine.line)
        if engine.kind is engines.Kind.PULUMI:
            yield _good("provider plugins: Pulumi's own, installed by it when needed")
        else:
            yield _good("provider plugins: stand-ins for kubernetes and command")
    except UsageError as error:
        yield _bad(str(error))
    try:
        config = read_valid(project, stack)
    except UsageError as error:
        yield _bad(str(error))
        return
    yield _good(f"Pulumi.{stack}.yaml is valid ({config.cluster_type})")
    if uses_lab(config):
        yield from _lab(project)


def _lab(project: Project) -> Iterator[Finding]:
    folder = project.lab_folder
    free = shutil.disk_usage(folder if folder.exists() else project.folder).free
    yield Finding(
        good=free >= NEEDED_BYTES,
        text=f"{free // GIB} GiB free for the lab in {folder}"
        + ("" if free >= NEEDED_BYTES else f"; make room, {NEEDED_BYTES // GIB} GiB are needed"),
    )
