"""`gpu-clusters review`: what a preview means, as a comment for those who have to say yes or no."""

import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuclusters.cli.errors import RunError, UsageError, wrong_option
from gpuclusters.cli.files import read_json, read_yaml, write
from gpuclusters.cli.forge import Entries, Forge, TooLongError, comments_of
from gpuclusters.cli.project import Project, open_session
from gpuclusters.cli.stack import ensure_stack
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

_OFF = "off"


_LARGEST_BYTES = 512 * 1024 * 1024
_DEFAULT_STACK = "dev"


class Format(StrEnum):
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Options:
    fail_on: str = ""
    format: Format = Format.MARKDOWN
    output: Path | None = None
    comment: Forge | None = None
    pull_request: int | None = None
    key: str = "default"
    policy: Path | None = None
    """Severities and parameters of the rules, in the form of Pulumi's policy configuration."""
    severities: Sequence[str] = ()
    """`rule=level`, over what the file says."""
    budget: float | None = None
    prices: Path | None = None
    artifact: str | None = None


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
            "--stack", "-s", envvar="PULUMI_STACK", help="Which stacks to preview; may be repeated."
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
    prices_: Annotated[
        Path | None,
        typer.Option("--prices", help="Your prices, laid over those that come with the command."),
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
    options = Options(
        fail_on,
        Format.JSON if json_ else format_,
        output,
        comment,
        pull_request,
        key,
        policy,
        severity or (),
        budget,
        prices_,
        artifact,
    )
    raise typer.Exit(run(files or [], stack or [], options))


def rules(options: Options) -> tuple[Rule, ...]:
    try:
        stated_in = {} if options.policy is None else read_json(options.policy)
        made = configured(RULES, stated_in, str(options.policy))
    except SettingsError as error:
        raise wrong_option(f"--policy: {error}") from error
    known = [rule.id for rule in RULES]
    stated: dict[str, dict[str, Any]] = {}
    for option in options.severities:
        id_, _, word = option.partition("=")
        if id_ not in known:
            raise wrong_option(f"--severity: there is no rule {id_!r}{nearest(id_, known)}")
        level = "disabled" if word == _OFF else word
        if severity_of(level) is None:
            raise wrong_option(
                f"--severity {id_}: write mandatory, advisory or disabled (got {word!r})"
            )
        stated[id_] = {LEVEL: level}
    if options.budget is not None:
        stated.setdefault(BUDGET, {})["monthly"] = options.budget
    return configured(made, stated, "the options")


def prices(options: Options, rules: Sequence[Rule]) -> PriceTable:
    """The price table: of `--prices`, else with the prices of the rule `budget`."""
    own = next(r.parameters for r in rules if r.id == BUDGET)
    try:
        if options.prices is None and isinstance(own, BudgetParameters) and own.prices:
            return price_table(own.prices)
        if options.prices is None:
            return price_table()
        return price_table(read_yaml(options.prices), f"the price table {options.prices}")
    except PriceError as error:
        raise wrong_option(str(error)) from error


def run(
    files: Sequence[str],
    names: Sequence[str],
    options: Options,
    *,
    env: Mapping[str, str] = os.environ,
) -> int:
    if files and names and len(files) != len(names):
        raise wrong_option("give as many --stack as files, or none")
    try:
        closing = gates.parse(options.fail_on)
    except gates.GateError as error:
        raise wrong_option(f"--fail-on: {error}") from error
    checked = rules(options)
    table = prices(options, checked)
    where = comments_of(options.comment, env, options.pull_request) if options.comment else None

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
    _write(outcomes, options)
    if where is not None:
        with Entries(where) as reached:
            _comment(outcomes, options, reached)
    return _code(outcomes, closing)


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
    if session.in_lab:
        ensure_stack(session)
    # What it says besides goes to this terminal; a failed preview tells why in its JSON.
    words = ("preview", "--stack", name, "--json", "--show-sames", "--non-interactive")
    done = session.run(*words, stderr=None)
    return done.stdout if done.stdout.strip() else None


def _write(outcomes: Sequence[Outcome], options: Options) -> None:
    def text(kind: Format) -> str:
        if kind is Format.HTML:
            return page(outcomes)
        if kind is Format.JSON:
            return json.dumps(document(outcomes), indent=2, ensure_ascii=False) + "\n"
        return markdown(outcomes, key=options.key, most=UNLIMITED)

    if options.output is None:
        if options.comment is None:
            sys.stdout.write(text(options.format))
        return
    names = {Format.MARKDOWN: "review.md", Format.HTML: "review.html", Format.JSON: "review.json"}
    for kind, name in names.items():
        write(options.output / name, text(kind))
    sys.stderr.write(
        f"review: {', '.join(str(options.output / name) for name in names.values())}\n"
    )


def _comment(outcomes: Sequence[Outcome], options: Options, comments: Entries) -> None:
    most = GITHUB if options.comment is Forge.GITHUB else GITLAB
    for share in (1, 2, 4):
        body = markdown(outcomes, key=options.key, most=most // share, artifact=options.artifact)
        try:
            address = comments.put(body, marker(options.key, "review"))
        except TooLongError:
            if share == 4:
                raise
            continue
        sys.stderr.write(f"comment: {address}\n")
        return
