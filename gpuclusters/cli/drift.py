"""`gpu-clusters drift`: everything of a stack that is not as it was declared, in one report."""

import difflib
import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gpuclusters.cli import files
from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.forge import Entries, Forge, Target, issues_of
from gpuclusters.cli.help import AsJson, StackName
from gpuclusters.cli.project import Project
from gpuclusters.drift import rendering
from gpuclusters.drift.rendering import markdown
from gpuclusters.drift.report import CODES, DocumentError, Report, document, report_of
from gpuclusters.review.text import GITHUB, GITLAB, UNLIMITED, marker


def command(
    stack: StackName = "dev",
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="For an issue.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID[@WHERE[/WHAT]]",
            help="Leave findings out: host.unit-failed, node.cordoned@hgx-07, 'helm.object-*@kata-system/*'.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="An administrator's; default: the lab's, the stack's, $KUBECONFIG."),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from", help="Tell what an earlier look found (its --json) instead of looking."
        ),
    ] = None,
    issue: Annotated[
        Forge | None,
        typer.Option(
            help="Keep one issue of the project in step: opened at drift, edited, closed when all is well. "
            "The token is read from GITHUB_TOKEN or GITLAB_TOKEN."
        ),
    ] = None,
) -> None:
    """Say what is not as it was declared: machines, cluster, tenants, Helm's objects. Changes nothing.

    Joins a refresh by the engine with what it does not look at. Exit code: 0 no drift; 1 drift; 2 something
    could not be looked at, and the report says what.
    """
    if as_json and as_markdown:
        raise UsageError("--json and --markdown are two forms of one report; choose one")
    patterns = _patterns(ignore or [])
    where = issues_of(issue, os.environ) if issue else None
    began = time.monotonic()
    if earlier is not None:
        found = _read(earlier, patterns)
    else:
        # Much is imported with it, which a report from a file does without.
        from gpuclusters.cli.drift_look import look

        found = look(Project.find(), stack, kubeconfig=kubeconfig, ignore=patterns)
    if as_json:
        sys.stdout.write(json.dumps(document(found), indent=2, ensure_ascii=False) + "\n")
    elif as_markdown:
        sys.stdout.write(markdown(found, most=UNLIMITED))
    else:
        rendering.show(Console(highlight=False), found, time.monotonic() - began)
    if where is not None:
        _keep_issue(found, where)
    raise typer.Exit(found.exit_code)


def _read(path: Path, ignore: list[str]) -> Report:
    try:
        return report_of(files.read_json(path), ignore=ignore)
    except DocumentError as error:
        raise UsageError(f"{path}: {error}") from error


def _patterns(stated: list[str]) -> list[str]:
    for pattern in stated:
        id_ = pattern.partition("@")[0]
        if "*" not in id_ and id_ not in CODES:
            near = difflib.get_close_matches(id_, CODES, n=1)
            instead = f"did you mean {near[0]}?" if near else "`gpu-clusters explain` lists all"
            raise UsageError(f"--ignore: no drift has the code {id_!r}; {instead}")
    return stated


def _keep_issue(found: Report, where: Target) -> None:
    most = GITHUB if where.forge is Forge.GITHUB else GITLAB
    title, mark = f"Drift: stack {found.stack}", marker(found.stack, "drift")
    with Entries(where) as issues:
        if found.exit_code == 0:
            said = issues.close(mark)
        else:
            # An issue that says "could not look" is worth as much as one that says what drifted.
            said = issues.put(markdown(found, most=most), mark, title)
    sys.stderr.write(f"issue: {said or 'none is open, none is needed'}\n")
