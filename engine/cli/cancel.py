"""`cancel`, which releases the lock of a run that ended without doing so, and `version`."""

import argparse
import sys

from engine.cli.parser import Commands, command
from engine.cli.terminal import agreed, confirm, interactive
from engine.cli.workspace import Workspace
from engine.state import VERSION

_NOTE = "embedded engine; its state and its command line are those of this version of Pulumi"


def add_verbs(verbs: Commands) -> None:
    command(verbs, "version", _version, "print the version of Pulumi that this engine follows")
    parser = command(verbs, "cancel", run, "release the lock of a stack")
    parser.add_argument("stack", nargs="?", metavar="STACK")
    parser.add_argument("--stack", "-s", dest="named", metavar="NAME")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _version(arguments: argparse.Namespace) -> int:
    del arguments
    print(VERSION)
    print(_NOTE, file=sys.stderr)
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Carry out `cancel`."""
    arguments.stack = arguments.named or arguments.stack
    workspace = Workspace(arguments)
    stack = workspace.stack
    if not agreed(arguments):
        confirm(
            f"This will irreversibly cancel the currently running update of '{stack.name}'!"
            " It may leave the stack in an inconsistent state. Go on?",
            ask=interactive(arguments),
            refusal="non-interactive mode requires --yes flag",
        )
    count = workspace.backend.cancel(stack)
    if count:
        print(f"The currently running update for '{stack.name}' has been canceled!")
    else:
        print(f"Stack '{stack.name}' has no lock; nothing to cancel.")
    return 0
