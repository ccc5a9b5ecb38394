"""The command line: verbs and flags by the names of Pulumi's CLI.

argparse and not typer: the import costs a tenth, and every command pays it.
"""

import argparse
import difflib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeAlias

from engine.cli.refusals import refusal
from engine.usererror import ExitCode, UserError

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"

_NO_SUCH = re.compile(r"argument (?:VERB|ACTION): invalid choice: '(.*?)' \(choose from (.*)\)")
# Flags that Pulumi lets stand alone, with the value that they then have.
_BARE = {"--refresh": "true", "-r": "true"}

_PREFIX = "PULUMI_OPTION_"
_VARIABLES = {
    "PULUMI_DEBUG_PROVIDERS": "unset it; providers are started by the engine",
    "PULUMI_RUN_PROGRAM": "unset it, and run `up` first, which renews what providers are given",
}
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


class Parser(argparse.ArgumentParser):
    """Reports what is wrong as a `UserError`, not by ending the process."""

    def error(self, message: str) -> NoReturn:
        if found := _NO_SUCH.match(message):
            raise self._no_such_command(found[1])
        raise UserError(f"{message}; see `{self.prog} --help`", ExitCode.CONFIGURATION)

    def help_alone(self) -> None:
        """Without a command below this one, print what there is, as Pulumi does."""

        def run(arguments: argparse.Namespace) -> int:
            del arguments
            self.print_help()
            return 0

        self.set_defaults(run=run)

    def _no_such_command(self, name: str) -> UserError:
        return refusal(name, self.prog.removeprefix(PROGRAM).strip()) or UserError(
            f'unknown command "{name}" for "{self.prog}"{nearest(name, _names(self))}',
            ExitCode.CONFIGURATION,
        )


PROGRAM = "python -m engine"
_VERB_WORDS = 3
"""Blanks in the name of a command that is no action below another one."""


def command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int] | None,
    text: str,
    *aliases: str,
    optional: tuple[str, ...] = (),
) -> Parser:
    """A new verb or action; without `run` it prints what is below it.

    `optional` are arguments that may be left out and may stand behind flags.
    """
    parser = commands.add_parser(
        name,
        parents=[global_flags(argparse.SUPPRESS)],
        allow_abbrev=False,
        aliases=aliases,
        help=text,
    )
    parser.set_defaults(optional=optional)
    if run is None:
        parser.help_alone()
    else:
        parser.set_defaults(run=run)
    return parser


def actions(parser: Parser) -> Commands:
    """Where the actions below a verb are registered."""
    return parser.add_subparsers(dest="action", metavar="ACTION", parser_class=Parser)


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """The verb (`run`: the function that carries it out) and its flags."""
    first = next(iter(arguments), "")
    if first == "help":
        arguments = [*arguments[1:], "--help"]
    elif first == "--version":
        arguments = ["version", *arguments[1:]]
    refuse_environment()
    known, unknown = parser.parse_known_args(_normalised(arguments, _switches(parser)))
    literal = False
    for argument in unknown:
        if argument == "--":
            literal = True
            continue
        if _taken_late(known, argument, literal=literal):
            continue
        raise _unknown(_chosen(parser, known), argument)
    return known


def nearest(name: str, names: Sequence[str]) -> str:
    """A question after the name that was probably meant; empty if none is near."""
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _unknown(parser: Parser, argument: str) -> UserError:
    flag = argument.partition("=")[0]
    if not flag.startswith("-"):
        instead = f"; see `{parser.prog} --help`"
        if parser.prog.split()[-1] in ("up", "update"):
            instead = (
                ": templates and addresses are not part of the embedded engine; run it in the folder"
                " of a project"
            )
        return UserError(
            f"unknown argument {argument!r} of `{parser.prog}`{instead}", ExitCode.CONFIGURATION
        )
    flags = [name for action in parser._actions for name in action.option_strings]
    return refusal(flag, parser.prog.removeprefix(PROGRAM).strip()) or UserError(
        f"unknown flag: {flag} of `{parser.prog}`"
        f"{nearest(flag, flags) or f'; see `{parser.prog} --help`'}",
        ExitCode.CONFIGURATION,
    )


def _taken_late(known: argparse.Namespace, argument: str, *, literal: bool) -> bool:
    """Whether an argument is one that may be left out and stands behind a flag.

    argparse decides that it was left out as soon as a flag follows the arguments before it.
    """
    if argument.startswith("-") and not literal:
        return False
    for name in getattr(known, "optional", ()):
        held = getattr(known, name)
        if held is None:
            setattr(known, name, argument)
            return True
        if isinstance(held, list):
            held.append(argument)
            return True
    return False


def _normalised(arguments: Sequence[str], switches: frozenset[str]) -> list[str]:
    """Write ``--flag=true`` and a bare ``--refresh`` as argparse has them."""
    result: list[str] = []
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--":
            return [*result, *arguments[position:]]
        if equals and name in switches:
            result += [name] if switched(name, value) else []
        elif argument in _BARE:
            result.append(f"{'--refresh' if argument == '-r' else argument}={_BARE[argument]}")
        else:
            result.append(argument)
    return result


def _below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str, Parser]]:
    """Destination, name and parser of each command right below one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield action.dest, name, below


def _all(parser: Parser) -> Iterator[Parser]:
    yield parser
    for _, _, below in _below(parser):
        yield from _all(below)


def _names(parser: argparse.ArgumentParser) -> list[str]:
    return [name for _, name, _ in _below(parser)]


def _chosen(parser: Parser, known: argparse.Namespace) -> Parser:
    """The parser of the innermost command that was named."""
    for dest, name, below in _below(parser):
        if getattr(known, dest, None) == name:
            return _chosen(below, known)
    return parser


def _switches(parser: Parser) -> frozenset[str]:
    return frozenset(
        name
        for one in _all(parser)
        for action in one._actions
        if action.nargs == 0
        for name in action.option_strings
    )


def _colour(text: str) -> str:
    if text == "raw":
        raise argparse.ArgumentTypeError(
            "raw is not part of the embedded engine: Pulumi's own marks for colours are not used"
            " here; write always, never or auto"
        )
    if text not in ("always", "never", "auto"):
        raise argparse.ArgumentTypeError(f"{text!r} is not one of always, never, auto")
    return text


def global_flags(default: object) -> Parser:
    flags = Parser(add_help=False, allow_abbrev=False)
    flags.add_argument("--cwd", "-C", default=default, metavar="FOLDER", help="run as if there")
    flags.add_argument(
        "--color",
        type=_colour,
        default=default,
        metavar="always|never|auto",
        help="when to colour the output",
    )
    flags.add_argument(
        "--non-interactive",
        action="store_true",
        default=default,
        help="never ask, as without a terminal",
    )
    return flags


def stack_flags(parser: argparse.ArgumentParser, *, file: bool = False) -> None:
    """The flags with which a command says which stack it is about, and in which file it is."""
    # `config --stack dev get key` works as well as `config get --stack dev key`.
    default = None if parser.prog.count(" ") == _VERB_WORDS else argparse.SUPPRESS
    parser.add_argument(
        "--stack",
        "-s",
        default=default,
        metavar="NAME",
        help="the stack; default: the selected one",
    )
    if file:
        parser.add_argument(
            "--config-file",
            default=default,
            metavar="FILE",
            help="in place of Pulumi.<stack>.yaml in the project",
        )


def switched(flag: str, value: str) -> bool:
    """Whether ``--flag=value`` switches a flag on."""
    word = value.lower()
    if word not in _TRUE | _FALSE or not word:
        raise UserError(f"{flag}={value}: write true or false", ExitCode.CONFIGURATION)
    return word in _TRUE


def truth(text: str) -> str:
    """``true`` or ``false`` from any of the words for them; the type of a flag."""
    try:
        return "true" if switched("", text) else "false"
    except UserError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false") from None


def refuse_environment() -> None:
    """Refuse variables of Pulumi's CLI that would change a run here: ``PULUMI_OPTION_<FLAG>`` is any flag."""
    for name, instead in _VARIABLES.items():
        if os.environ.get(name):
            raise UserError(
                f"{name} is set, which is not part of the embedded engine: {instead}",
                ExitCode.CONFIGURATION,
            )
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and os.environ[name]:
            flag = name.removeprefix(_PREFIX).lower().replace("_", "-")
            raise UserError(
                f"{name} is set: the embedded engine takes no flags from the environment; unset it and"
                f" pass --{flag}",
                ExitCode.CONFIGURATION,
            )
