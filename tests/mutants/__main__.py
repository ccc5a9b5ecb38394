"""`make mutants`: breaks the product in recorded ways, one at a time, and looks whether a test notices.

A mutant names a text that stands once in the product, what takes its place, and the tests that should
fail. It is tried in a copy of the checkout, so that nothing here is ever changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLACES = ("gpuclusters", "caas", "components", "engine")
SUFFIXES = (".py", ".sh", ".xml", ".yaml")
SIDE_BY_SIDE = 2
SECONDS = 300
ALL_SECONDS = 1800
"""For the tests of all mutants together, on a busy machine."""


@dataclass(frozen=True)
class Mutant:
    breaks: str
    find: str
    put: str
    tests: tuple[str, ...]


class MutantError(Exception):
    """A record that does not fit the code any more."""


def recorded() -> list[Mutant]:
    rows = yaml.safe_load((HERE / "mutants.yaml").read_text())
    return [Mutant(r["breaks"], r["find"], r["put"], tuple(r["tests"].split())) for r in rows]


def copied(to: Path) -> Path:
    """What git knows of the checkout, with the same environment."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    (to / ".venv").symlink_to(ROOT / ".venv")
    return to


@cache
def _texts(tree: Path) -> Mapping[Path, str]:
    """What mutants break, before any does."""
    files = (file for place in PLACES for file in sorted((tree / place).rglob("*")))
    return {file: file.read_text() for file in files if file.suffix in SUFFIXES}


def place_of(mutant: Mutant, tree: Path) -> Path:
    """The one file with the text.

    Raises:
        MutantError: it stands nowhere, or more than once.
    """
    found = [f for f, text in _texts(tree).items() for _ in range(text.count(mutant.find))]
    if len(found) != 1:
        where = ", ".join(str(f.relative_to(tree)) for f in found) or "nowhere"
        raise MutantError(f"{mutant.breaks}: its text stands {where}: {mutant.find!r}")
    return found[0]


def fails(tree: Path, tests: Sequence[str], workers: int = 0, seconds: int = SECONDS) -> str:
    """The first test that fails, or that they do not end in time; empty if all pass."""
    try:
        done = subprocess.run(
            [str(tree / ".venv/bin/python"), "-m", "pytest", "-x", "-q", "-n", str(workers),
             "-p", "no:cacheprovider", "--no-header", *tests],
            cwd=tree, capture_output=True, text=True, check=False, timeout=seconds,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {seconds} s"
    if done.returncode not in (0, 1, 2):
        raise MutantError(
            f"pytest ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr}"
        )
    failed = [one for one in done.stdout.splitlines() if one.startswith(("FAILED", "ERROR"))]
    return (failed or ["collection"])[0] if done.returncode else ""


def tried(mutant: Mutant, trees: SimpleQueue[Path]) -> str:
    """The test that notices, in the next tree that is free; empty if none does."""
    tree = trees.get()
    file = place_of(mutant, tree)
    text = file.read_text()
    file.write_text(text.replace(mutant.find, mutant.put))
    try:
        return fails(tree, mutant.tests)
    finally:
        file.write_text(text)
        trees.put(tree)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("words", nargs="*", help="only mutants whose name has one of these words")
    words = parser.parse_args().words
    mutants = [m for m in recorded() if not words or any(w in m.breaks for w in words)]
    began, missed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(SIDE_BY_SIDE):
            trees.put(tree := copied(Path(folder) / str(number)))
        for mutant in mutants:
            place_of(mutant, tree)
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if broken := fails(tree, tests, SIDE_BY_SIDE, ALL_SECONDS):
            raise MutantError(f"a test fails before anything is broken: {broken}")
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            found = pool.map(lambda mutant: tried(mutant, trees), mutants)
            for mutant, noticed in zip(mutants, found, strict=True):
                missed += not noticed
                said = f"caught by {noticed}" if noticed else "MISSED"
                print(f"{mutant.breaks}: {said}", flush=True)
    seconds = time.monotonic() - began
    print(f"{len(mutants) - missed} of {len(mutants)} mutants caught in {seconds:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MutantError as error:
        sys.exit(f"error: {error}")
