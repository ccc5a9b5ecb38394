"""docs/errors.md, made of the catalogue, and the list of ids that were released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from gpuclusters.errors.catalogue import catalogue
from gpuclusters.errors.entry import RAISED, Category, Entry

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
RELEASED = Path(__file__).with_name("ids.txt")
_INTRODUCTION = """---
tocdepth: 2
---

# Errors

Every error and warning of this program carries its id at the end of its first line: `… [no-stack]`.
`gpu-clusters explain ID` prints what stands here. Ids stay what they are from release to release, so that you
can search for them and alert on them. The page is made from the code by `make schema`; `…` stands for names
and values. Errors of Pulumi's own engine, of Helm and of Kubernetes are passed on and have no id; the
embedded engine says what Pulumi says word for word, and its ids are shown on a terminal only.

<!-- run -->
```console
$ gpu-clusters explain disk-full
disk-full
  means:  No space, or no inode, left on the host.
  do:     Make room on the machine; the old file is untouched.
…
```
"""


def released() -> frozenset[str]:
    """Ids that were in a release."""
    return frozenset(RELEASED.read_text(encoding="utf-8").split())


def render() -> str:
    """The page as it is committed."""
    entries = catalogue().values()
    lines = [_INTRODUCTION]
    for category in Category:
        lines += [f"## {category}", "", f"Where: {RAISED[category]}.", ""]
        for entry in entries:
            if entry.category is category:
                lines += [*_section(entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def _section(entry: Entry) -> Iterator[str]:
    yield f"### {entry.id}"
    yield ""
    yield " ".join(_escaped(_sentence(cause)) for cause in entry.causes)
    if entry.warning:
        yield ""
        yield "A warning: it stops nothing."
    if entry.messages:
        yield ""
        yield "Says: " + _listed(f"… {message}" for message in entry.messages)
    yield ""
    yield "**Do**: " + _listed(entry.fixes)
    where = ", ".join(one for one in (entry.place, entry.source) if one)
    if where:
        yield ""
        yield f"Raised: {_escaped(where)}"


def _listed(texts: Iterable[str]) -> str:
    said = [_escaped(_sentence(text)) for text in texts]
    return said[0] if len(said) == 1 else "\n" + "\n".join(f"- {one}" for one in said)


def _sentence(text: str) -> str:
    text = text.strip().rstrip(";:,")
    first = text if text.startswith(("`", "…")) else text[:1].upper() + text[1:]
    return first if first.endswith((".", "!", "?", "`", "…")) else f"{first}."


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is; what stands between backticks is left alone."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        parts = [text.replace("`", "'")]
    shown = []
    for position, part in enumerate(parts):
        if position % 2 == 0:
            for sign in ("\\", "<", "*", "_", "[", "]", "|", "$", "{"):
                part = part.replace(sign, f"\\{sign}")
        shown.append(part)
    return "`".join(shown)


def write() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


def release() -> None:
    """Put the ids of this version on the list of those that stay.

    Raises:
        ValueError: an id that was released is gone.
    """
    gone = released() - set(catalogue())
    if gone:
        raise ValueError(GONE.format(ids=", ".join(sorted(gone))))
    RELEASED.write_text("\n".join(sorted(catalogue())) + "\n", encoding="utf-8")


GONE = (
    "these ids of errors are gone: {ids}. Users search for them and alert on them, so they stay: give the "
    "function or class its old name back, or, if nothing can raise the error any more, take the line out of "
    "gpuclusters/errors/ids.txt and say so in CHANGELOG.md"
)
