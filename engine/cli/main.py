"""The entry point: parse, carry out, and turn whatever goes wrong into one sentence."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.cli import cancel, configuration, operations, stacks, states
from engine.cli.parser import PROGRAM, Parser, global_flags, parse
from engine.usererror import ExitCode, UserError

DEBUG_VARIABLE = "GPU_CLUSTERS_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code."""
    try:
        return _carry_out(sys.argv[1:] if arguments is None else arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return ExitCode.CANCELLED
    except BrokenPipeError:
        # The reader of our output has gone; nothing that could be said would reach it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            raise
        print(
            f"error: internal fault of the embedded engine: {type(error).__name__}: {error};"
            f" set {DEBUG_VARIABLE}=1 for the details and please report them",
            file=sys.stderr,
        )
        return ExitCode.INTERNAL


def build() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="The embedded engine: a subset of the Pulumi CLI on a file backend.",
        parents=[global_flags(None)],
        allow_abbrev=False,
    )
    parser.help_alone()
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser)
    for module in (operations, stacks, configuration, states, cancel):
        module.add_verbs(verbs)
    return parser


def _carry_out(arguments: Sequence[str]) -> int:
    parsed = parse(build(), arguments)
    if parsed.cwd:
        folder = Path(parsed.cwd)
        if not folder.is_dir():
            raise UserError(f"--cwd {folder}: there is no such folder", ExitCode.CONFIGURATION)
        os.chdir(folder)
    code = int(parsed.run(parsed))
    # What is left in the buffer may find no reader; here that can still be dealt with.
    sys.stdout.flush()
    return code
