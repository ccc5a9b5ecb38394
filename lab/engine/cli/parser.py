"""The command line: verbs and flags by the names of Pulumi's CLI.

argparse and not typer: the import costs a tenth, and every command pays it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from lab.engine.usererror import ExitCode, UserError

Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"

# Flags of Pulumi's CLI that the embedded engine does not have: named, so that a refusal says why.
UNSUPPORTED = {
    "--attach-debugger": "debugging the program",
    "--client": "inline programs of the Automation API",
    "--copilot": "Pulumi Cloud",
    "--event-log": "event logs; `up --json` prints the same events",
    "--exec-agent": "the Automation API",
    "--exec-kind": "the Automation API",
    "--import-file": "import skeletons",
    "--import-pending-creates": "importing interrupted creates; clear or complete them",
    "--neo": "Pulumi Cloud",
    "--output": "the summary format; use --json",
    "--override-env": "Pulumi Cloud environments",
    "--plan": "update plans",
    "--policy-pack": "policy packs",
    "--policy-pack-config": "policy packs",
    "--remote": "Pulumi Deployments",
    "--run-program": "running the program for refresh and destroy",
    "--save-plan": "update plans",
    "--secrets-provider": "other secrets than under a passphrase",
    "--strict": "update plans",
    "--teams": "Pulumi Cloud",
    "--tracing": "tracing",
    "--profiling": "profiling",
    "--ignore-protect": "deleting protected resources; use `state unprotect` first",
}
PULUMI_VERBS = frozenset(
    {
        "about", "ai", "api", "console", "convert", "deployment", "env", "gen-completion", "help",
        "import", "install", "login", "logout", "logs", "neo", "new", "org", "package", "plugin",
        "policy", "project", "replay-events", "schema", "template", "version", "watch", "whoami",
    }
)  # fmt: skip
_UNKNOWN_VERB = re.compile(r"argument VERB: invalid choice: '([\w-]+)'")
_BOOLEANS = frozenset(
    {
        "--non-interactive", "--json", "--diff", "--yes", "--skip-preview", "--preview-only",
        "--expect-no-changes", "--target-dependents", "--exclude-dependents",
        "--continue-on-error", "--suppress-outputs", "--show-secrets", "--show-replacement-steps",
        "--show-sames", "--clear-pending-creates", "--force", "--path", "--secret", "--plaintext",
    }
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """Reports what is wrong as a `UserError`, not by ending the process."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        refused = _UNKNOWN_VERB.match(message)
        if refused and refused[1] in PULUMI_VERBS:
            raise UserError(
                f"`{refused[1]}` is not part of the embedded engine; use the Pulumi CLI for it",
                ExitCode.CONFIGURATION,
            )
        raise UserError(f"{message}; see `{self.prog} --help`", ExitCode.CONFIGURATION)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The verb (`run`: the function that carries it out) and its flags.

    Raises:
        UserError: an unknown verb or flag, or one that Pulumi has and the engine has not.
    """
    parser = build()
    known, unknown = parser.parse_known_args(_normalised(arguments))
    literal = False
    for argument in unknown:
        if argument == "--":
            literal = True
            continue
        if _taken_late(known, argument, literal=literal):
            continue
        flag = argument.partition("=")[0]
        if flag in UNSUPPORTED:
            raise UserError(
                f"{flag}: the embedded engine does not do this ({UNSUPPORTED[flag]});"
                " use the Pulumi CLI for it",
                ExitCode.CONFIGURATION,
            )
        what = "flag" if flag.startswith("-") else "argument"
        raise UserError(
            f"unknown {what} {argument!r} of `{known.verb}`; see `{known.verb} --help`",
            ExitCode.CONFIGURATION,
        )
    return known


def _taken_late(known: argparse.Namespace, argument: str, *, literal: bool) -> bool:
    """Whether an argument is one that may be left out and stands behind a flag.

    argparse decides that it was left out as soon as a flag follows the arguments before it.
    """
    if argument.startswith("-") and not literal:
        return False
    for name in getattr(known, "optional", ()):
        if getattr(known, name) is None:
            setattr(known, name, argument)
            return True
    return False


def _normalised(arguments: Sequence[str]) -> list[str]:
    """Write ``--flag=true`` and a bare ``--refresh`` as argparse has them."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*result, *arguments[position:]]
        if equals and name in _BOOLEANS and value in ("true", "false"):
            result += [name] if value == "true" else []
        elif argument in ("--refresh", "-r"):
            result.append("--refresh=true")
        else:
            result.append(argument)
    return result


def build() -> Parser:
    """The whole parser."""
    from lab.engine.cli import cancel, configuration, operations, stacks, states

    shared = _global_flags(argparse.SUPPRESS)
    parser = Parser(
        prog="python -m lab.engine",
        description="The embedded engine: a subset of the Pulumi CLI on a file backend.",
        parents=[_global_flags(None)],
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB", parser_class=Parser)
    for module in (operations, stacks, configuration, states, cancel):
        module.add_verbs(verbs, shared)
    return parser


def _global_flags(default: object) -> Parser:
    flags = Parser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cwd", "-C", default=default, metavar="FOLDER", help="run as if there")
    flags.add_argument(
        "--color",
        choices=("always", "never", "raw", "auto"),
        default=default,
        help="when to colour the output",
    )
    flags.add_argument(
        "--non-interactive",
        action="store_true",
        default=default,
        help="never ask, as without a terminal",
    )
    return flags


def stack_flags(parser: argparse.ArgumentParser) -> None:
    """The flags with which a command says which stack it is about."""
    parser.add_argument(
        "--stack", "-s", metavar="NAME", help="the stack; default: the selected one"
    )


def nested_stack_flag(parser: argparse.ArgumentParser) -> None:
    """`--stack` of a command below one that has it too: either place will do."""
    parser.add_argument("--stack", "-s", default=argparse.SUPPRESS, metavar="NAME")


def config_file_flag(parser: argparse.ArgumentParser) -> None:
    """The flag that names another stack file."""
    parser.add_argument(
        "--config-file", metavar="FILE", help="in place of Pulumi.<stack>.yaml in the project"
    )
