"""Console blocks with `<!-- run -->` above them are run, and what they print is compared.

A line `$ …` is the command; what follows is what it prints, `…` for what differs from time to time. Only
commands of this program, without a lab, in this process.
"""

from __future__ import annotations

import re
import shlex
import sys

import pytest

from engine.cli.main import build
from engine.cli.parser import parse
from engine.usererror import UserError
from gpuclusters.cli.main import main
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


def of_pulumi() -> list[object]:
    """Every line of the pages that calls Pulumi's command."""
    found = []
    for page in pages():
        for one in blocks(page):
            if one.language in ("", "sh", "bash", "console"):
                for line in one.text.replace("\\\n", " ").splitlines():
                    called = re.match(r"\s*(?:\$ )?pulumi (?P<rest>.*)$", line)
                    if called and not re.search(r"[…\[]|&&", called["rest"]):
                        found.append(pytest.param(called["rest"], id=f"{one.id}: {line.strip()}"))
    return found


@pytest.mark.parametrize("rest", of_pulumi())
def test_a_command_of_pulumi_in_a_page_could_be_typed(rest: str) -> None:
    line = re.split(r"\s#\s|\s\|\s|\s<\s|\s>\s", rest.strip())[0]
    try:
        parse(build(), shlex.split(line))
    except UserError as error:
        # What only the real CLI does is refused by the embedded engine by name.
        if "is not part of the embedded engine" not in str(error):
            raise
