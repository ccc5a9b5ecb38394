"""A review as one HTML page: readable on a phone, in light and dark, with nothing fetched from anywhere."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import resources

from markdown_it import MarkdownIt

from gpuclusters.drawing.picture import drawn
from gpuclusters.drawing.svg import svg
from gpuclusters.review.fleet import fleet
from gpuclusters.review.markdown import details, head, sections
from gpuclusters.review.review import Outcome, Review, worst
from gpuclusters.review.text import listed, plural, visible

_MOST_ROWS = 200
_MOST_REASONS = 1000
_KINDS = {"+": "add", "-": "del", "!": "chg"}


def page(outcomes: Sequence[Outcome]) -> str:
    """The page. The same reviews give the same bytes."""
    style = resources.files("gpuclusters.review").joinpath("page.css").read_text(encoding="utf-8")
    level = worst(outcomes)
    names = listed([outcome.stack for outcome in outcomes], 4)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" content="'
        "default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(visible(f'{level.words}: {names}'))}</title>",
        f"<style>{style}</style></head><body>",
    ]
    if len(outcomes) > 1:
        stacks = plural(len(outcomes), "stack")
        parts.append(f"<h1>{level.sign} {level.words}: {stacks}</h1>")
    for outcome in outcomes:
        parts += ["<section>", *_one(outcome), "</section>"]
    return "\n".join([*parts, "</body></html>", ""])


def _one(outcome: Outcome) -> Iterator[str]:
    yield from _rendered([head(outcome, "##", _MOST_REASONS)])
    if isinstance(outcome, Review):
        yield from _rendered(sections(outcome, _MOST_ROWS, whole=True))
        for cluster in fleet(outcome.plan, after=True).values():
            if cluster.machines:
                says = f"after this change, stack {outcome.stack}"
                yield f"<figure>{svg(drawn(cluster, says))}</figure>"
        yield from _rendered(details(outcome, _MOST_ROWS))


def _rendered(parts: Iterable[str]) -> Iterator[str]:
    how = {"html": True, "highlight": _coloured}
    reader = MarkdownIt("commonmark", how).enable("table")
    # What keeps forges from reading mentions into names has no use here.
    return (reader.render(part).replace("\u200b", "") for part in parts)


def _coloured(text: str, _language: str, _attributes: str) -> str:
    """Lines of a diff, by their signs."""
    lines = ((_KINDS.get(line[:1]), escape(line)) for line in text.splitlines())
    return "\n".join(
        f'<span class="{kind}">{line}</span>' if kind else line for kind, line in lines
    )
