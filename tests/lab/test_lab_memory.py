"""How much memory processes of a lab are said to take."""

from __future__ import annotations

import os
import subprocess
import sys

from lab import memory

_PARENT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=0) as child:
    child.wait()
"""
_CHILD = """
import sys
held = b"x" * (64 * 2**20)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_process_counts_by_itself_or_with_all_that_it_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        alone = memory.of_process(process.pid)
        tree = memory.of_trees([process.pid, os.getpid()])
        assert process.stdin is not None
        process.stdin.close()
    assert 0 < alone < 64 * 2**20 < tree[process.pid] < tree[os.getpid()]


def test_none_and_a_process_that_is_gone_take_nothing() -> None:
    gone = 2**31 - 1  # more than any kernel gives
    assert memory.of_process(None) == memory.of_process(gone) == 0
    assert memory.of_trees([gone]) == {gone: 0}
