"""`python -m lab.nodes`: into the real nodes of a folder, and at their programs."""

import os
import sys
from pathlib import Path

from lab.nodes.model import NodesError
from lab.nodes.process import command_in, status
from lab.nodes.requests import control

_USAGE = """\
usage: python -m lab.nodes start-program|stop-program|restart-program FOLDER NODE PROGRAM
                           enter FOLDER NODE COMMAND...
(PROGRAM: kubelet, containerd, kube-proxy, coredns, machine, cable)"""
_ACTIONS = {f"{action}-program": action for action in ("start", "stop", "restart")}


def main(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    match arguments:
        case ["serve", folder]:
            from lab.nodes.server import serve

            serve(Path(folder))
        case [word, folder, node, program] if word in _ACTIONS:
            control(Path(folder), node, program, _ACTIONS[word])
        case ["enter", folder, name, *command] if command:
            running = status(Path(folder)).machines.get(name)
            if running is None:
                raise NodesError(f"no node {name!r} runs in {folder}")
            line = command_in(running, command)
            os.execvp(line[0], line)  # noqa: S606 (the user's own command)
        case _:
            print(_USAGE, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except NodesError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
