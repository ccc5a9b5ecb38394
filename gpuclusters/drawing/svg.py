"""A picture of a cluster as SVG: one file, no script, no font, no address of anything; light and dark."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources

from gpuclusters.drawing.picture import Card, Machine, Partition, Picture, Tenant, cards

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
    chips = _chip_rows(picture.tenants)
    top = _HEAD + (30 * len(chips) + 30 if chips else 0)
    height = top + sum(heights) + _GAP * len(rows) + _MARGIN
    colours = {tenant.name: index % _COLOURS for index, tenant in enumerate(picture.tenants)}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" class="gc" role="img" '
        f'width="{_WIDTH}" height="{height}" aria-label="{text(_summary(picture))}">',
        f"<style>{style()}</style>",
        f'<rect class="gc-page" width="{_WIDTH}" height="{height}" rx="14"/>',
        *_title(picture),
        *_control_plane(picture),
        *_tenants(chips, colours),
    ]
    y = top
    for row, tall in zip(rows, heights, strict=True):
        for column, card in enumerate(row):
            x = _MARGIN + column * (_CARD + _GAP)
            parts += _card(card, x, y, tall, colours)
        y += tall + _GAP
    return "\n".join([*parts, "</svg>", ""])


def _summary(picture: Picture) -> str:
    return (
        f"Cluster {picture.name} ({picture.type}): {len(picture.machines)} machines, {picture.gpus} GPUs, "
        f"{len(picture.tenants)} tenants"
    )


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


def _title(picture: Picture) -> Iterator[str]:
    yield f'<text class="gc-title" x="{_MARGIN}" y="46">{text(picture.name, 40)}</text>'
    facts = [picture.type, f"{len(picture.machines)} machines", f"{picture.gpus} GPUs"]
    yield (
        f'<text class="gc-facts" x="{_WIDTH - _MARGIN}" y="44" text-anchor="end">'
        f"{text(' · '.join(facts))}</text>"
    )
    if picture.says:
        yield (
            f'<text class="gc-small" x="{_WIDTH - _MARGIN}" y="62" text-anchor="end">'
            f"{text(picture.says)}</text>"
        )


def _control_plane(picture: Picture) -> Iterator[str]:
    width = _WIDTH - 2 * _MARGIN
    yield f'<rect class="gc-plane" x="{_MARGIN}" y="76" width="{width}" height="52" rx="10"/>'
    yield f'<text class="gc-label" x="{_MARGIN + 16}" y="98">Kubernetes</text>'
    yield (
        f'<text class="gc-small" x="{_MARGIN + 16}" y="116">'
        f"{text(picture.control_plane or 'not declared here', 60)}</text>"
    )
    x = _WIDTH - _MARGIN - 16
    for program in reversed(picture.programs):
        wide = 20 + 7 * len(program)
        x -= wide
        yield f'<rect class="gc-pill" x="{x}" y="89" width="{wide}" height="26" rx="13"/>'
        yield (
            f'<text class="gc-pilltext" x="{x + wide / 2:g}" y="106" text-anchor="middle">'
            f"{text(program, 30)}</text>"
        )
        x -= 10


def _chip_width(tenant: Tenant) -> int:
    return 52 + 7 * min(len(_chip_text(tenant)), 44)


def _chip_text(tenant: Tenant) -> str:
    return f"{tenant.name} · up to {tenant.gpus} GPU{'' if tenant.gpus == 1 else 's'}"


def _chip_rows(tenants: Sequence[Tenant]) -> list[list[Tenant]]:
    rows: list[list[Tenant]] = []
    used = _WIDTH
    for tenant in tenants:
        wide = _chip_width(tenant)
        if used + wide > _WIDTH - 2 * _MARGIN:
            rows.append([])
            used = 0
        rows[-1].append(tenant)
        used += wide
    return rows


def _tenants(rows: Sequence[Sequence[Tenant]], colours: Mapping[str, int]) -> Iterator[str]:
    if rows:
        yield f'<text class="gc-small" x="{_MARGIN}" y="{_HEAD + 6}">TENANTS</text>'
    for index, row in enumerate(rows):
        x, y = _MARGIN, _HEAD + 18 + 30 * index
        for tenant in row:
            yield f'<circle class="gc-t{colours[tenant.name]}" cx="{x + 8}" cy="{y + 9}" r="7"/>'
            yield f'<text class="gc-chip" x="{x + 22}" y="{y + 14}">{text(_chip_text(tenant), 44)}</text>'
            x += _chip_width(tenant)


def _lines(machine: Machine) -> list[list[Partition]]:
    """Partitions in rows of at most eight GPUs, so that a board is one row."""
    rows: list[list[Partition]] = []
    used = 8
    for partition in machine.partitions:
        if used + len(partition.modules) > 8:
            rows.append([])
            used = 0
        rows[-1].append(partition)
        used += len(partition.modules)
    return rows


def _height(card: Card) -> int:
    rows = max(len(_lines(card.machine)), 1)
    return 62 + 62 * rows + (30 if card.machine.switched else 0) + (18 if card.machine.note else 0)


def _card(card: Card, x: int, y: int, tall: int, colours: Mapping[str, int]) -> Iterator[str]:
    machine = card.machine
    if len(card.names) > 1:
        # A stack of cards: there are more of it.
        yield f'<rect class="gc-card" x="{x + 6}" y="{y + 6}" width="{_CARD}" height="{tall}" rx="10"/>'
        yield f'<rect class="gc-card" x="{x + 3}" y="{y + 3}" width="{_CARD}" height="{tall}" rx="10"/>'
    yield f'<rect class="gc-card" x="{x}" y="{y}" width="{_CARD}" height="{tall}" rx="10"/>'
    name = machine.name
    if len(card.names) > 1:
        name = f"{len(card.names)} like {machine.name}"
        yield f"<title>{text(f'{card.names[0]} … {card.names[-1]}')}</title>"
    yield f'<text class="gc-label" x="{x + 14}" y="{y + 26}">{text(name, 30)}</text>'
    facts = " · ".join(filter(None, (machine.role, machine.kind)))
    yield (
        f'<text class="gc-small" x="{x + _CARD - 14}" y="{y + 25}" text-anchor="end">'
        f"{text(facts, 34)}</text>"
    )
    top = y + 44
    for row in _lines(machine) or [[]]:
        yield from _board(row, machine, x + 14, top, colours)
        top += 62
    if machine.switched:
        yield f'<rect class="gc-switch" x="{x + 14}" y="{top}" width="{_CARD - 28}" height="22" rx="5"/>'
        yield (
            f'<text class="gc-switchtext" x="{x + _CARD / 2:g}" y="{top + 15}" text-anchor="middle">'
            "NVSwitch · fabric manager in a service VM</text>"
        )
        top += 30
    if machine.note:
        yield f'<text class="gc-note" x="{x + 14}" y="{top + 8}">{text(machine.note, 46)}</text>'


def _board(
    row: Sequence[Partition], machine: Machine, x: int, y: int, colours: Mapping[str, int]
) -> Iterator[str]:
    if not row:
        yield f'<text class="gc-small" x="{x}" y="{y + 24}">no GPUs</text>'
        return
    for partition in row:
        wide = len(partition.modules) * _STEP - 3
        style = "gc-partition" if partition.label else "gc-loose"
        yield f'<rect class="{style}" x="{x}" y="{y}" width="{wide}" height="{_GPU + 4}" rx="6"/>'
        for index, module in enumerate(partition.modules):
            left = x + 2 + index * _STEP
            holder = machine.holders.get(module, "")
            fill = f"gc-t{colours[holder]}" if holder in colours else "gc-gpu"
            yield f'<rect class="{fill}" x="{left}" y="{y + 2}" width="{_GPU}" height="{_GPU}" rx="4"/>'
            tone = "gc-ontenant" if holder in colours else "gc-number"
            yield (
                f'<text class="{tone}" x="{left + _GPU / 2:g}" y="{y + 19}" text-anchor="middle">'
                f"{module}</text>"
            )
        if partition.label:
            label = (
                partition.label
                if len(partition.modules) > 1
                else partition.label.rsplit(" ", 1)[-1]
            )
            yield (
                f'<text class="gc-small" x="{x + wide / 2:g}" y="{y + _GPU + 20}" text-anchor="middle">'
                f"{text(label, 24)}</text>"
            )
        x += wide + 3
