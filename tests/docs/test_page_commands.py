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
from tests.docs.pages import ROOT, Block, blocks, pages, typed

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


def called(program: str) -> list[object]:
    """The rest of every line of the pages that calls a program; what is a pattern is left out."""
    found = []
    for page in pages():
        for one in blocks(page):
            if one.language in ("", "sh", "bash", "console"):
                for line in one.text.replace("\\\n", " ").splitlines():
                    typed = re.match(rf"\s*(?:\$ )?{program} (?P<rest>.*)$", line)
                    if typed and not re.search(r"[…\[]|&&", typed["rest"]):
                        rest = re.split(r"\s#\s|\s\|\s|\s<\s|\s>\s|;", typed["rest"].strip())[0]
                        found.append(pytest.param(rest, id=f"{one.id}: {line.strip()}"))
    return found


@pytest.mark.parametrize("rest", called("pulumi"))
def test_a_command_of_pulumi_in_a_page_could_be_typed(rest: str) -> None:
    try:
        parse(build(), shlex.split(rest))
    except UserError as error:
        # What only the real CLI does is refused by the embedded engine by name.
        if "is not part of the embedded engine" not in str(error):
            raise


@pytest.mark.parametrize("rest", called("make"))
def test_a_target_of_make_in_a_page_is_there(rest: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(shlex.split(rest)) <= set(targets)


@pytest.mark.parametrize("rest", called("kubectl"))
def test_a_command_of_kubectl_in_a_page_could_be_typed(rest: str) -> None:
    """kubectl reads its words before it asks the server, which is not there."""
    words = [tools.resolve("kubectl"), "--server", "http://127.0.0.1:1", *shlex.split(rest)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert "127.0.0.1:1" in done.stderr, done.stderr
