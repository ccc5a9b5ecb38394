"""Console blocks with `<!-- run -->` above them are run, and what they print is compared.

A line `$ …` is the command; what follows is what it prints, `…` for what differs from time to time. Only
commands of this program, without a lab, in this process.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from engine.cli.main import build
from engine.cli.parser import parse
from engine.usererror import UserError
from gpuclusters.cli.main import main
from lab import tools
from tests.docs.pages import ROOT, Block, blocks, calls, pages, typed

MARKED = [block for page in pages() for block in blocks(page) if block.marked]


@pytest.mark.parametrize("block", [pytest.param(one, id=one.id) for one in MARKED])
def test_a_page_shows_what_the_command_prints(
    block: Block, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert block.language == "console"
    monkeypatch.chdir(ROOT)
    for variable in ("PULUMI_STACK", "GPU_CLUSTERS_LAB"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    ran = typed(block)
    assert ran
    for line, expected in ran:
        program, *arguments = shlex.split(line)
        assert program == "gpu-clusters"
        monkeypatch.setattr(sys, "argv", [program, *arguments])
        with pytest.raises(SystemExit):
            main()
        out, err = capsys.readouterr()
        printed = "\n".join(one.rstrip() for one in (out + err).strip().splitlines())
        assert re.fullmatch(expected, printed, re.DOTALL), printed


def test_there_are_such_blocks() -> None:
    assert len(MARKED) >= 3


@pytest.mark.parametrize("words", calls("pulumi"))
def test_a_command_of_pulumi_in_a_page_could_be_typed(words: list[str]) -> None:
    try:
        parse(build(), words)
    except UserError as error:
        # What only the real CLI does is refused by the embedded engine by name.
        if "is not part of the embedded engine" not in str(error):
            raise


@pytest.mark.parametrize("words", calls("make"))
def test_a_target_of_make_in_a_page_is_there(words: list[str]) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(words) <= set(targets)


@pytest.mark.parametrize("words", calls("kubectl"))
def test_a_command_of_kubectl_in_a_page_could_be_typed(words: list[str]) -> None:
    """kubectl reads its words before it asks the server, which is not there."""
    words = [str(tools.resolve("kubectl")), "--server", "http://127.0.0.1:1", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "127.0.0.1:1" in done.stderr, done.stderr
