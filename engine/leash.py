"""Runs a Python module or file that ends with the process that started it, however that one ends.

The starter holds the write end of a pipe, this process the read end. The kernel closes the write end when
the starter dies, even if that happens before this file runs. Asking for the parent's id cannot tell: a
process whose parent is dead already has a new one, and would wait for that.

Started by path, with the Python of the program, which need not know this package:
`python leash.py DESCRIPTOR MODULE-OR-FILE ARGUMENT…`.
"""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # Modules of this folder (the first of the path, behind links) must not hide others, such as `secrets`.
    # What runs finds its own where `python -m` would.
    sys.path[0] = ""

import os
import runpy
import signal
import threading
import time
from collections.abc import Sequence

GRACE_SECONDS = 150
"""For what runs to end by itself: a stand-in waits for Helm, which marks its release as failed."""


class Leash:
    """The starter's end. It is held as long as this object lives."""

    def __init__(self) -> None:
        self.end, write = os.pipe()
        """The other end: goes into `pass_fds`, and is closed here by `handed_over`."""
        self._held = os.fdopen(write, "wb", 0)

    def command(self, python: Sequence[str], *what: str) -> list[str]:
        """The command that runs a module or file on this leash."""
        return [*python, "-u", __file__, str(self.end), *what]

    def handed_over(self) -> None:
        """The process has its end, or was not started."""
        os.close(self.end)

    def let_go(self) -> None:
        self._held.close()


def _end_with_starter(descriptor: int) -> None:
    """End as SIGTERM does once the starter is gone; then end for certain, with all that was started here."""
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _main() -> None:
    descriptor, what = int(sys.argv[1]), sys.argv[2]
    # What is started from here must not take it for its own.
    os.set_inheritable(descriptor, False)  # noqa: FBT003
    # Whoever started the starter may have ignored it, which is inherited.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_starter, args=(descriptor,), daemon=True).start()
    del sys.argv[:2]
    if what.endswith(".py"):
        runpy.run_path(what, run_name="__main__")
    else:
        runpy.run_module(what, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
