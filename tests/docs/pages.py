"""The pages that people read, and what is in them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<language>[^\n`]*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str
    marked: bool
    """Whether `<!-- run -->` stands in the line above it."""

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All Markdown that is for people."""
    return sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


def blocks(page: Path) -> Iterator[Block]:
    """Fenced blocks of a page."""
    lines = page.read_text(encoding="utf-8").splitlines()
    begin = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if begin is None:
            begin = (number, fence["mark"], fence["language"].strip())
        elif fence["mark"].startswith(begin[1]) and not fence["language"].strip():
            start, _, language = begin
            above = lines[start - 1] if start else ""
            text = "\n".join(lines[start + 1 : number])
            yield Block(page, start + 1, language, text, above.strip() == "<!-- run -->")
            begin = None


def typed(block: Block) -> list[tuple[str, str]]:
    """Every command of a console block, `$ …`, with a pattern of what it prints; `…` differs each time."""
    found: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        elif found:
            found[-1][1].append(line)
    return [
        (command, re.escape("\n".join(lines).strip()).replace("…", ".*?"))
        for command, lines in found
    ]


def calls(program: str) -> list[Any]:
    """The rest of every line of the pages that calls a program; what is a pattern is left out."""
    found = []
    for one in (block for page in pages() for block in blocks(page)):
        if one.language in ("", "sh", "bash", "console", "ini", "text", "dockerfile"):
            for line in one.text.replace("\\\n", " ").splitlines():
                call = re.match(rf"\s*(?:\$ )?(?:\.venv/bin/)?{program} (?P<rest>.*)$", line)
                if call and not re.search(r"[…\[]|<\S", call["rest"]):
                    rest = re.split(r"\s#\s|\s[|<>]\s|;|\s&&\s", call["rest"].strip())[0]
                    words = shlex.split(rest)
                    found.append(pytest.param(words, id=f"{one.id}: {line.strip()[:60]}"))
    return found


def prose(page: Path) -> str:
    """The text of a page without fenced blocks and code."""
    return re.sub(r"`[^`\n]*`", "`code`", _without_blocks(page))


def _without_blocks(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^ *(`{3,}|~{3,})[^\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Names by which headings of a page are linked, as a forge gives them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", _without_blocks(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("\\", "")
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        candidate, count = name, 0
        while candidate in found:
            count += 1
            candidate = f"{name}-{count}"
        found.add(candidate)
    return found
