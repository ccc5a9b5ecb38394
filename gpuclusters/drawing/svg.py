"""A picture of a cluster as SVG: one file, no script, no font, no address of anything; light and dark."""

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TypeVar

from gpuclusters.drawing.picture import Card, Machine, Partition, Picture, Tenant, cards

T = TypeVar("T")
_WIDTH = 980
_MARGIN = 24
_GAP = 18
_COLUMNS = 3
_CARD = (_WIDTH - 2 * _MARGIN - (_COLUMNS - 1) * _GAP) // _COLUMNS
_GPU = 26
_STEP = 33
_COLOURS = 8
_HEAD = 150


def svg(picture: Picture) -> str:
    """The picture. The same picture gives the same bytes."""
    drawn = cards(picture.machines)
    rows = [drawn[i : i + _COLUMNS] for i in range(0, len(drawn), _COLUMNS)]
    heights = [max(map(_height, row)) for row in rows]
    chips = _filled(picture.tenants, _WIDTH - 2 * _MARGIN, _chip_width)
    top = _HEAD + (30 * len(chips) + 30 if chips else 0)
    height = top + sum(heights) + _GAP * len(rows) + _MARGIN
    colours = {tenant.name: index % _COLOURS for index, tenant in enumerate(picture.tenants)}
    parts = [*_title(picture), *_control_plane(picture), *_tenants(chips, colours)]
    y = top
    for row, tall in zip(rows, heights, strict=True):
        for column, card in enumerate(row):
            x = _MARGIN + column * (_CARD + _GAP)
            parts += _card(card, x, y, tall, colours)
        y += tall + _GAP
    counts = (
        f"{len(picture.machines)} machines, {picture.gpus} GPUs, {len(picture.tenants)} tenants"
    )
    says = f"Cluster {picture.name} ({picture.type}): {counts}"
    return page(_WIDTH, height, says, parts)


def page(width: int, height: int, says: str, parts: Iterable[str], rules: str = "") -> str:
    """A drawing of this size; `says` is for those who do not see it, `rules` are more of the style."""
    size = f'width="{width}" height="{height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" class="gc" role="img" '
        f'{size} aria-label="{text(says)}">',
        f"<style>{style()}{rules}</style>",
        f'<rect class="gc-page" {size} rx="14"/>',
    )
    return "\n".join([*head, *parts, "</svg>", ""])


_PALETTE = {
    "p": ("#fbfcfd", "#0f141a"),
    "c": ("#ffffff", "#171e26"),
    "l": ("#d4dae1", "#323d49"),
    "t": ("#17202b", "#e6ebf1"),
    "s": ("#5b6875", "#9aa7b4"),
    "g": ("#dde4ec", "#2b3743"),
    "b": ("#eef3f9", "#18222d"),
    "e": ("#2f6feb", "#6ea8fe"),
    "w": ("#eceff3", "#202a34"),
    "n": ("#a15c00", "#e0a642"),
}
"""Page, card, line, text, small text, GPU, plane, edge, switch, note: light and dark."""


def style() -> str:
    """The style of every drawing, light and dark.

    Colours are written out: librsvg and CairoSVG know no variables of CSS, and draw what has one in black.
    """
    rules = resources.files("gpuclusters.drawing").joinpath("picture.css").read_text("utf-8")
    light = dark = rules
    for name, (by_day, by_night) in _PALETTE.items():
        light = light.replace(f"var(--{name})", by_day)
        dark = dark.replace(f"var(--{name})", by_night)
    return f"{light}@media (prefers-color-scheme:dark){{{dark}}}"


def text(said: str, most: int = 200) -> str:
    """Text as SVG may hold it: escaped, and without characters that XML forbids or nobody sees."""
    shown = "".join(
        c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in said
    )
    return escape(shown if len(shown) <= most else shown[: most - 1] + "…", quote=True)


def label(kind: str, x: float, y: float, said: str, most: int = 200, *, anchor: str = "") -> str:
    """A line of text of a class of the style; `anchor` is `middle` or `end`."""
    at = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="gc-{kind}" x="{x:g}" y="{y:g}"{at}>{text(said, most)}</text>'


def box(kind: str, x: float, y: float, width: float, height: float, radius: int) -> str:
    """A rectangle of a class of the style."""
    size = f'width="{width:g}" height="{height:g}" rx="{radius}"'
    return f'<rect class="gc-{kind}" x="{x:g}" y="{y:g}" {size}/>'


def _title(picture: Picture) -> Iterator[str]:
    right = _WIDTH - _MARGIN
    facts = [picture.type, f"{len(picture.machines)} machines", f"{picture.gpus} GPUs"]
    yield label("title", _MARGIN, 46, picture.name, 40)
    yield label("facts", right, 44, " · ".join(facts), anchor="end")
    if picture.says:
        yield label("small", right, 62, picture.says, anchor="end")


def _control_plane(picture: Picture) -> Iterator[str]:
    yield box("plane", _MARGIN, 76, _WIDTH - 2 * _MARGIN, 52, 10)
    yield label("label", _MARGIN + 16, 98, "Kubernetes")
    yield label("small", _MARGIN + 16, 116, picture.control_plane or "not declared here", 60)
    x = _WIDTH - _MARGIN - 16
    for program in reversed(picture.programs):
        wide = 20 + 7 * len(program)
        x -= wide
        yield box("pill", x, 89, wide, 26, 13)
        yield label("pilltext", x + wide / 2, 106, program, 30, anchor="middle")
        x -= 10


def _chip_width(tenant: Tenant) -> int:
    return 52 + 7 * min(len(_chip_text(tenant)), 44)


def _chip_text(tenant: Tenant) -> str:
    return f"{tenant.name} · up to {tenant.gpus} GPU{'' if tenant.gpus == 1 else 's'}"


def _filled(items: Sequence[T], room: int, size: Callable[[T], int]) -> list[list[T]]:
    """Rows of as many items as there is room for."""
    rows: list[list[T]] = []
    used = room
    for item in items:
        if used + size(item) > room:
            rows.append([])
            used = 0
        rows[-1].append(item)
        used += size(item)
    return rows


def _tenants(rows: Sequence[Sequence[Tenant]], colours: Mapping[str, int]) -> Iterator[str]:
    if rows:
        yield label("small", _MARGIN, _HEAD + 6, "TENANTS")
    for index, row in enumerate(rows):
        x, y = _MARGIN, _HEAD + 18 + 30 * index
        for tenant in row:
            yield f'<circle class="gc-t{colours[tenant.name]}" cx="{x + 8}" cy="{y + 9}" r="7"/>'
            yield label("chip", x + 22, y + 14, _chip_text(tenant), 44)
            x += _chip_width(tenant)


def _lines(machine: Machine) -> list[list[Partition]]:
    """Partitions in rows of at most eight GPUs, so that a board is one row."""
    return _filled(machine.partitions, 8, lambda partition: len(partition.modules))


def _height(card: Card) -> int:
    rows = max(len(_lines(card.machine)), 1)
    return 62 + 62 * rows + (30 if card.machine.switched else 0) + (18 if card.machine.note else 0)


def _card(card: Card, x: int, y: int, tall: int, colours: Mapping[str, int]) -> Iterator[str]:
    machine, name = card.machine, card.machine.name
    # A stack of cards: there are more of it.
    for off in (6, 3, 0) if len(card.names) > 1 else (0,):
        yield box("card", x + off, y + off, _CARD, tall, 10)
    if len(card.names) > 1:
        name = f"{len(card.names)} like {machine.name}"
        yield f"<title>{text(f'{card.names[0]} … {card.names[-1]}')}</title>"
    yield label("label", x + 14, y + 26, name, 30)
    facts = " · ".join(filter(None, (machine.role, machine.kind)))
    yield label("small", x + _CARD - 14, y + 25, facts, 34, anchor="end")
    top = y + 44
    for row in _lines(machine) or [[]]:
        yield from _board(row, machine, x + 14, top, colours)
        top += 62
    if machine.switched:
        said = "NVSwitch · fabric manager in a service VM"
        yield box("switch", x + 14, top, _CARD - 28, 22, 5)
        yield label("switchtext", x + _CARD / 2, top + 15, said, anchor="middle")
        top += 30
    if machine.note:
        yield label("note", x + 14, top + 8, machine.note, 46)


def _board(
    row: Sequence[Partition], machine: Machine, x: int, y: int, colours: Mapping[str, int]
) -> Iterator[str]:
    if not row:
        yield label("small", x, y + 24, "no GPUs")
    for partition in row:
        wide = len(partition.modules) * _STEP - 3
        yield box("partition" if partition.label else "loose", x, y, wide, _GPU + 4, 6)
        for index, module in enumerate(partition.modules):
            left = x + 2 + index * _STEP
            holder = machine.holders.get(module, "")
            fill, tone = "gpu", "number"
            if holder in colours:
                fill, tone = f"t{colours[holder]}", "ontenant"
            yield box(fill, left, y + 2, _GPU, _GPU, 4)
            yield label(tone, left + _GPU / 2, y + 19, str(module), anchor="middle")
        if partition.label:
            short = partition.label.rsplit(" ", 1)[-1]
            name = partition.label if len(partition.modules) > 1 else short
            yield label("small", x + wide / 2, y + _GPU + 20, name, 24, anchor="middle")
        x += wide + 3
