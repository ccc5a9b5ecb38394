"""The flags of `preview`, `up`, `refresh` and `destroy`."""

from __future__ import annotations

import argparse
import os

from lab.engine.cli.options import truth
from lab.engine.cli.parser import PROGRAM as COMMAND
from lab.engine.cli.parser import config_file_flag, stack_flags
from lab.engine.usererror import ExitCode, UserError

# Pulumi's own default: four steps at a time for each processor.
STEPS_PER_CPU = 4

REMOVED = "The resources in the stack have been deleted, and the history and configuration removed."


def kept(stack: str) -> str:
    """What is said after a destroy that leaves the stack."""
    return (
        "The resources in the stack have been deleted, but the history and configuration associated"
        " with the stack are still maintained.\nIf you want to remove the stack completely, run"
        f" `{COMMAND} stack rm {stack}`."
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """What all four have."""
    stack_flags(parser)
    config_file_flag(parser)
    add = parser.add_argument
    add("--json", "-j", action="store_true", help="print JSON")
    add("--diff", action="store_true", help="show what differs, property by property")
    add("--config", "-c", action="append", default=[], metavar="KEY=VALUE", help="set and save")
    add("--config-path", action="store_true", help="the keys of --config are paths")
    add("--message", "-m", default="", help="what the history says about this run")
    add("--parallel", "-p", type=int, metavar="N", help="steps that may run at a time")
    add("--debug", "-d", action="store_true", help="show what the program and plugins log")
    add("--event-log", metavar="FILE", help="write every event to a file, one JSON a line")
    add("--target", "-t", action="append", default=[], metavar="URN", help="only these resources")
    add("--target-dependents", action="store_true", help="and what depends on them")
    add("--show-replacement-steps", action="store_true", help="a replacement in its parts")
    add("--show-sames", action="store_true", help="show what does not change as well")
    add("--show-reads", action="store_true", help="show what is only read as well")
    add("--show-config", action="store_true", help="show the configuration first")
    add("--show-full-output", action="store_true", help="do not cut long values")
    add("--suppress-outputs", action="store_true", help="do not show the stack's outputs")
    add(
        "--suppress-permalink",
        type=truth,
        metavar="true|false",
        help="false: say where the state is; true, the default: do not",
    )
    add("--run-program", action="store_true", help="configure providers as the program does now")
    add("--skip-config-validation", action="store_true", help="do not check types and gaps")


def add_excludes(parser: argparse.ArgumentParser) -> None:
    """Leaving resources out."""
    add = parser.add_argument
    add("--exclude", "-x", action="append", default=[], metavar="URN", help="not these resources")
    add("--exclude-dependents", action="store_true", help="nor what depends on them")


def add_expectation(parser: argparse.ArgumentParser) -> None:
    """What there should be to do."""
    parser.add_argument(
        "--expect-no-changes", action="store_true", help="exit with 7 if there are changes"
    )


def add_destroy(parser: argparse.ArgumentParser) -> None:
    """What only `destroy` has."""
    add = parser.add_argument
    add("--remove", action="store_true", help="remove the stack afterwards")
    add("--exclude-protected", action="store_true", help="leave what is protected")


def add_continue(parser: argparse.ArgumentParser) -> None:
    """Going on after a failure."""
    parser.add_argument(
        "--continue-on-error", action="store_true", help="finish what does not depend on it"
    )


def add_preview_only(parser: argparse.ArgumentParser) -> None:
    """Looking only."""
    parser.add_argument("--preview-only", action="store_true", help="change nothing")


def add_refresh(parser: argparse.ArgumentParser) -> None:
    """Refreshing first."""
    parser.add_argument(
        "--refresh", "-r", type=truth, metavar="true|false", help="read what is really there first"
    )


def add_replace(parser: argparse.ArgumentParser) -> None:
    """Replacing by name."""
    add = parser.add_argument
    add("--replace", action="append", default=[], metavar="URN", help="replace these resources")
    add("--target-replace", action="append", default=[], metavar="URN", help="--target, --replace")
    add("--show-secrets", action="store_true", help="show secrets in outputs in plain text")


def add_pending_creates(parser: argparse.ArgumentParser) -> None:
    """What becomes of creates that were cut off, of which nobody knows how they ended."""
    add = parser.add_argument
    add("--clear-pending-creates", action="store_true", help="they made nothing: forget them")
    add("--skip-pending-creates", action="store_true", help="leave them, and do not ask")
    add(
        "--import-pending-creates",
        action="append",
        default=[],
        metavar="URN --import-pending-creates ID",
        help="they made something: its id, each after its URN",
    )


def add_secrets_provider(parser: argparse.ArgumentParser) -> None:
    """How a new stack encrypts."""
    parser.add_argument(
        "--secrets-provider", default="default", metavar="passphrase", help="of a new stack"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """What only commands have that change something."""
    add = parser.add_argument
    add("--yes", "-y", action="store_true", help="do not ask")
    add("--skip-preview", "-f", action="store_true", help="go ahead without a preview; implies -y")


def check_provider(name: str) -> None:
    """Refuse secrets providers but the default and a passphrase, which are the same here.

    Raises:
        UserError: it is another provider.
    """
    if name not in ("default", "passphrase"):
        raise UserError(
            f"secrets provider {name!r}: the embedded engine encrypts under a passphrase only;"
            " use the Pulumi CLI for others",
            ExitCode.CONFIGURATION,
        )


def check(arguments: argparse.Namespace) -> None:
    """Refuse flags that do not go together.

    Raises:
        UserError: they do not.
    """
    if arguments.target and getattr(arguments, "exclude", []):
        raise UserError("--target and --exclude cannot be used together", ExitCode.CONFIGURATION)
    if getattr(arguments, "exclude_protected", False) and arguments.target:
        raise UserError(
            "you cannot specify --target and --exclude-protected", ExitCode.CONFIGURATION
        )
    if getattr(arguments, "exclude_dependents", False) and not arguments.exclude:
        raise UserError("--exclude-dependents needs an --exclude", ExitCode.CONFIGURATION)
    if arguments.config_path and not arguments.config:
        raise UserError("--config-path needs a --config KEY=VALUE", ExitCode.CONFIGURATION)
    if arguments.target_dependents and not (
        arguments.target or getattr(arguments, "target_replace", [])
    ):
        raise UserError("--target-dependents needs a --target", ExitCode.CONFIGURATION)
    check_provider(getattr(arguments, "secrets_provider", "default"))
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UserError("--parallel has to be 1 or more", ExitCode.CONFIGURATION)


def parallel(arguments: argparse.Namespace) -> int:
    """How many steps may run at a time."""
    if arguments.parallel is not None:
        return int(arguments.parallel)
    given = os.environ.get("PULUMI_PARALLEL", "")
    if not given:
        return STEPS_PER_CPU * (os.cpu_count() or 1)
    if not given.isdigit() or int(given) < 1:
        raise UserError(
            f"PULUMI_PARALLEL is {given!r}; it has to be a number of 1 or more",
            ExitCode.CONFIGURATION,
        )
    return int(given)


def refreshes(value: str | None, *, always: bool) -> bool:
    """Whether to refresh first: the flag, else the environment, else the project."""
    chosen = value if value is not None else os.environ.get("PULUMI_REFRESH")
    if chosen is None:
        return always
    return chosen.lower() in ("true", "1")
