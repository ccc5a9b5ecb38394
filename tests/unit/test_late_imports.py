"""Modules that providers import late, in several threads at once."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
USERS = sorted(
    ".".join(file.relative_to(PROJECT).with_suffix("").parts)
    for file in (PROJECT / "gpuclusters").rglob("*.py")
    if "\nfrom kubernetes" in file.read_text(encoding="utf-8")
)
# The second begins while the first is in the midst of the library: on a machine where it comes too late for
# that, nothing is shown.
PROGRAM = """
import sys, threading, time

begun, faults = threading.Event(), []

class Midst:
    def find_spec(self, name, path, target=None):
        if name == "kubernetes.client":
            begun.set()
            time.sleep(1)

def load(name):
    try:
        __import__(name)
    except BaseException as error:
        faults.append(f"{name}: {error!r}")

sys.meta_path.insert(0, Midst())
first, second = (threading.Thread(target=load, args=(name,)) for name in sys.argv[1:])
first.start()
begun.wait()
second.start()
first.join()
second.join()
sys.exit("; ".join(faults) or 0)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [pytest.param(*two, id=" ".join(two)) for two in itertools.permutations(USERS, 2)],
)
def test_two_threads_may_begin_with_different_users_of_the_kubernetes_library(
    first: str, second: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, first, second],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_library_has_several_users() -> None:
    assert len(USERS) > 1


def test_the_command_starts_without_pulumi() -> None:
    program = (
        "import sys, gpuclusters.cli.main\n"
        "sys.exit(' '.join({'pulumi', 'grpc'} & sys.modules.keys()) or 0)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
