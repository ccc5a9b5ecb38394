"""`gpu-clusters review`: what a preview means, as a comment for those who have to say yes or no."""

import itertools
import json
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.files import read_json, read_yaml, write
from gpuclusters.cli.forge import Entries, Forge, Target, TooLongError, comments_of
from gpuclusters.cli.help import stacks
from gpuclusters.cli.project import Project, open_session
from gpuclusters.cli.stack import with_state
from gpuclusters.core.errors import with_code
from gpuclusters.policy.rule import Rule
from gpuclusters.policy.rules import BUDGET, RULES, BudgetParameters
from gpuclusters.policy.settings import (
    LEVEL,
    SettingsError,
    configured,
    nearest,
    severity_of,
)
from gpuclusters.review import gates
from gpuclusters.review.cost import PriceError, PriceTable, price_table
from gpuclusters.review.document import document
from gpuclusters.review.html import page
from gpuclusters.review.markdown import markdown
from gpuclusters.review.plan import PlanError, read
from gpuclusters.review.review import Failure, Outcome, review
from gpuclusters.review.text import GITHUB, GITLAB, UNLIMITED, marker, masked_text

_LARGEST_BYTES = 512 * 1024 * 1024
_DEFAULT_STACK = "dev"


class Format(StrEnum):
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


_SUFFIXES = {Format.MARKDOWN: "md", Format.HTML: "html", Format.JSON: "json"}


def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="What `pulumi preview --json --show-sames` printed, one file for each stack; - is standard "
            "input. Without any the preview is made here.",
        ),
    ] = None,
    stack: Annotated[
        list[str] | None,
        typer.Option(
            "--stack",
            "-s",
            envvar="PULUMI_STACK",
            help="Which stacks to preview; may be repeated.",
            autocompletion=stacks,
        ),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            help="Exit with 5 if one of these holds: delete, replace, policy, dangerous, look, "
            "unknown-cost, cost>N (a month). Separated by commas."
        ),
    ] = "",
    format_: Annotated[Format, typer.Option("--format", help="What to print.")] = Format.MARKDOWN,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON: --format json.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for review.md, review.html and review.json, whole and not cut."),
    ] = None,
    comment: Annotated[
        Forge | None,
        typer.Option(
            help="Comment on the pull request of the pipeline around, and edit that comment later. The "
            "token is read from GITHUB_TOKEN or GITLAB_TOKEN."
        ),
    ] = None,
    pull_request: Annotated[
        int | None, typer.Option(min=1, help="Its number, where the pipeline does not tell.")
    ] = None,
    key: Annotated[
        str, typer.Option(help="Tells comments of several pipelines on one pull request apart.")
    ] = "default",
    prices: Annotated[
        Path | None, typer.Option(help="Your prices, laid over those that come with the command.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="The most that each stack may cost per month.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Severities and parameters of the policy rules: the file that Pulumi's "
            "--policy-pack-config takes."
        ),
    ] = None,
    severity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE=LEVEL",
            help="mandatory, advisory or disabled, for one policy rule, over what --policy says.",
        ),
    ] = None,
    artifact: Annotated[
        str | None,
        typer.Option(help="Where the whole review is kept; told where a comment is cut."),
    ] = None,
) -> None:
    """Say what a change does to the fleet and what it costs, for a pull request.

    Exit code: 0 reviewed, 1 a preview failed or the comment could not be made, 2 wrong use, 5 a gate of
    --fail-on is closed.
    """
    names = stack or []
    if files and names and len(files) != len(names):
        raise wrong_option("give as many --stack as files, or none")
    try:
        closing = gates.parse(fail_on)
    except gates.GateError as error:
        raise wrong_option(f"--fail-on: {error}") from error
    checked = _rules(policy, severity or (), budget)
    table = _prices(prices, checked)
    where = comments_of(comment, os.environ, pull_request) if comment else None

    def judged(source: str, name: str, text: str | None) -> Outcome:
        if text is None:
            why = f"the preview of {name} ended without a plan; its own messages say why"
            return Failure(name, why)
        try:
            return review(read(text, source), prices=table, rules=checked)
        except PlanError as error:
            return Failure(name, masked_text(str(error)))

    if files:
        pairs = itertools.zip_longest(files, names)
        outcomes = [judged(*_file(file, name)) for file, name in pairs]
    else:
        project = Project.find()
        outcomes = [
            judged(f"the preview of {name}", name, _previewed(project, name))
            for name in (names or [_DEFAULT_STACK])
        ]
    if output is not None:
        paths = {kind: output / f"review.{suffix}" for kind, suffix in _SUFFIXES.items()}
        for kind, path in paths.items():
            write(path, _text(outcomes, kind, key))
        sys.stderr.write(f"review: {', '.join(map(str, paths.values()))}\n")
    elif where is None:
        sys.stdout.write(_text(outcomes, Format.JSON if json_ else format_, key))
    if where is not None:
        _comment(outcomes, where, key, artifact)
    raise typer.Exit(_code(outcomes, closing))


def _rules(policy: Path | None, severities: Sequence[str], budget: float | None) -> Sequence[Rule]:
    """The rules as the file sets them, then as the options do."""
    try:
        made = configured(RULES, {} if policy is None else read_json(policy), str(policy))
    except SettingsError as error:
        raise wrong_option(f"--policy: {error}") from error
    known = [rule.id for rule in RULES]
    stated: dict[str, dict[str, Any]] = {}
    for option in severities:
        id_, _, word = option.partition("=")
        if id_ not in known:
            raise wrong_option(f"--severity: there is no rule {id_!r}{nearest(id_, known)}")
        level = "disabled" if word == "off" else word
        if severity_of(level) is None:
            raise wrong_option(
                f"--severity {id_}: write mandatory, advisory or disabled (got {word!r})"
            )
        stated[id_] = {LEVEL: level}
    if budget is not None:
        stated.setdefault(BUDGET, {})["monthly"] = budget
    return configured(made, stated, "the options")


def _prices(stated: Path | None, rules: Sequence[Rule]) -> PriceTable:
    """The price table: of `--prices`, else with the prices of the rule `budget`."""
    own = next(r.parameters for r in rules if r.id == BUDGET)
    try:
        if stated is not None:
            return price_table(read_yaml(stated), f"the price table {stated}")
        return price_table(own.prices if isinstance(own, BudgetParameters) else None)
    except PriceError as error:
        raise wrong_option(str(error)) from error


def _code(outcomes: Sequence[Outcome], closing: Sequence[str]) -> int:
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    for failure in failures:
        text = with_code(f"{failure.stack}: {failure.message}", PlanError.error_id)
        sys.stderr.write(f"error: {text}\n")
    shut = gates.closed(outcomes, closing)
    for reason in shut:
        sys.stderr.write(f"gate: {reason}\n")
    if failures:
        return RunError.exit_code
    return gates.EXIT_GATE if shut else 0


def _file(file: str, name: str | None) -> tuple[str, str, str]:
    unreadable = "command.unreadable-file"
    source = "standard input" if file == "-" else file
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as opened:
            data = opened.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", unreadable) from error
    if len(data) > _LARGEST_BYTES:
        most = f"{_LARGEST_BYTES >> 20} MiB"
        raise UsageError(f"{source} is larger than {most}; is it a preview?", unreadable)
    stem = source if file == "-" else Path(file).stem
    return source, name or stem, data.decode("utf-8", errors="replace")


def _previewed(project: Project, name: str) -> str | None:
    session = open_session(project, name)
    words = ("preview", "--stack", name, "--json", "--show-sames", "--non-interactive")
    with with_state(session, Console(stderr=True, highlight=False)) as (ready, where):
        # What it says besides goes to this terminal; a failed preview tells why in its JSON.
        done = ready.run(*words, *where, stderr=None)
    return done.stdout if done.stdout.strip() else None


def _text(outcomes: Sequence[Outcome], kind: Format, key: str) -> str:
    if kind is Format.HTML:
        return page(outcomes)
    if kind is Format.JSON:
        return json.dumps(document(outcomes), indent=2, ensure_ascii=False) + "\n"
    return markdown(outcomes, key=key, most=UNLIMITED)


def _comment(outcomes: Sequence[Outcome], where: Target, key: str, artifact: str | None) -> None:
    most = GITHUB if where.is_github else GITLAB
    with Entries(where) as comments:
        for share in (1, 2, 4):
            body = markdown(outcomes, key=key, most=most // share, artifact=artifact)
            try:
                address = comments.put(body, marker(key, "review"))
            except TooLongError:
                if share == 4:
                    raise
                continue
            sys.stderr.write(f"comment: {address}\n")
            return
