"""What is drawn as SVG, as somebody sees it: rendered, by day and by night."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import resvg_py
from PIL import Image, ImageFont

from gpuclusters.cli import draw
from gpuclusters.drawing.from_configuration import with_state
from gpuclusters.drawing.picture import Machine, Partition, Picture, Tenant
from gpuclusters.drawing.svg import svg
from gpuclusters.drawing.times import times_svg
from gpuclusters.proof import training_times

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "pictures"
DRAWN = ("dev", "hgx-h100", "rke2-a100", "live", "training times")
COMMITTED = [
    file
    for file in sorted([*ROOT.glob("docs/*.svg"), *PICTURES.glob("*.svg")])
    if file.stem not in DRAWN
]
TEXT = "{http://www.w3.org/2000/svg}text"
NIGHT = re.compile(r"@media \(prefers-color-scheme: ?dark\) ?\{((?:[^{}]*\{[^{}]*\})*)\s*\}")
ZOOM = 2
READABLE = 4.5
"""Contrast of small text, by WCAG 2.2, 1.4.3."""
BOARD = (Partition("partition 1", (1, 2, 3, 4)), Partition("partition 2", (5, 6, 7, 8)))
LIVE = with_state(
    Picture("caas", (Machine("a", partitions=BOARD),), tenants=(Tenant("acme", 4), Tenant("b", 4))),
    {"hosts": {"a": {"active_partitions": [1.0, 2.0]}}},
    {("a", 2): "acme", ("a", 5): "b"},
)

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Label:
    """A text, its place and its pixels."""

    said: str
    box: tuple[int, int, int, int]
    pixels: frozenset[tuple[int, int]]

    def overlaps(self, other: Label) -> bool:
        left, top, right, bottom = self.box
        x, y, beyond, below = other.box
        return left < beyond and x < right and top < below and y < bottom


@dataclass(frozen=True)
class Rendered:
    image: Image.Image
    labels: list[Label]

    def label(self, said: str) -> Label:
        return next(one for one in self.labels if one.said == said)

    @cached_property
    def _pixels(self) -> Any:
        return self.image.load()

    def colour(self, x: int, y: int) -> Colour:
        found: Colour = self._pixels[x, y]
        return found

    def behind(self, label: Label) -> Colour:
        """What most of the text's surroundings are painted in."""
        left, top, right, bottom = label.box
        around = ((x, y) for x in range(left, right) for y in range(top, bottom))
        ((colour, _),) = Counter(
            self.colour(*place) for place in around if place not in label.pixels
        ).most_common(1)
        return colour

    def contrast(self, label: Label) -> float:
        """Of the text's inkiest pixel with what is behind it: edges are smoothed."""
        behind = _luminance(self.behind(label))
        inks = map(_luminance, {self.colour(*place) for place in label.pixels})
        return max((max(ink, behind) + 0.05) / (min(ink, behind) + 0.05) for ink in inks)


def _luminance(colour: Colour) -> float:
    """As WCAG 2.2 defines it, from 0 to 1."""
    parts = (part / 255 for part in colour)
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.fixture(scope="module")
def font(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that Pillow brings: computers differ in theirs, or have none."""
    default = ImageFont.load_default(12)
    assert isinstance(default, ImageFont.FreeTypeFont)
    file = tmp_path_factory.mktemp("font") / "font.ttf"
    file.write_bytes(default.font_bytes)
    return file


def _image(text: str, font: Path) -> Image.Image:
    png = resvg_py.svg_to_bytes(
        svg_string=text,
        zoom=ZOOM,
        skip_system_fonts=True,
        font_files=[str(font)],
        sans_serif_family=ImageFont.load_default(12).getname()[0],
    )
    return Image.open(io.BytesIO(png)).convert("RGB")


def rendered(text: str, font: Path) -> Rendered:
    """As it is, and where each text is, by painting each in a colour of its own and nothing else."""
    root = ElementTree.fromstring(text)
    texts = [one for one in root.iter(TEXT) if "".join(one.itertext()).strip()]
    for number, node in enumerate(texts, 1):
        code = number.to_bytes(3, "little").hex()
        node.set("style", f"fill:#{code} !important;text-rendering:optimizeSpeed")
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] not in ("g", "style", "text", "tspan"):
                parent.remove(child)
    coded = _image(ElementTree.tostring(root, encoding="unicode"), font)
    places: dict[int, set[tuple[int, int]]] = {}
    coded.putalpha(0)
    for at, number in enumerate(memoryview(coded.tobytes()).cast("I")):
        if number:
            places.setdefault(number, set()).add((at % coded.width, at // coded.width))
    labels = []
    for number, node in enumerate(texts, 1):
        said = "".join(node.itertext())
        assert number in places, f"{said!r} is not to be seen"
        xs, ys = zip(*places[number], strict=True)
        box = (min(xs), min(ys), max(xs) + 1, max(ys) + 1)
        labels.append(Label(said, box, frozenset(places[number])))
    return Rendered(_image(text, font), labels)


def drawn(name: str, folder: Path) -> str:
    if name == "live":
        return svg(LIVE)
    if name == "training times":
        return times_svg([], training_times.table())
    out = folder / "picture.svg"
    draw.command(name, out)
    return out.read_text()


def by_day_and_night(text: str) -> Iterator[str]:
    yield text
    night = NIGHT.sub(r"\1", text)
    if night != text:
        yield night


def check(picture: Rendered) -> None:
    """Every text is within the picture, apart from the others, and can be read."""
    width, height = picture.image.size
    for label in picture.labels:
        left, top, right, bottom = label.box
        inside = left > 0 and top > 0 and right < width and bottom < height
        assert inside, f"{label.said!r} is cut off"
        assert picture.contrast(label) >= READABLE, f"{label.said!r} cannot be read"
    for one, other in combinations(picture.labels, 2):
        assert not one.overlaps(other), f"{one.said!r} and {other.said!r} are on one another"


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_can_be_read_by_day_and_by_night(
    name: str, font: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    text = drawn(name, tmp_path)
    assert "<script" not in text
    assert "url(" not in text
    assert len(text) < 60_000
    if (committed := PICTURES / f"{name}.svg").exists():
        assert text == committed.read_text(), "the documents show another picture: draw it anew"
    day, night = (rendered(one, font) for one in by_day_and_night(text))
    check(day)
    check(night)
    assert _luminance(day.colour(20, 20)) > 0.9
    assert _luminance(night.colour(20, 20)) < 0.1


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: file.name)
def test_a_picture_of_the_documents_can_be_read(file: Path, font: Path) -> None:
    for text in by_day_and_night(file.read_text()):
        check(rendered(text, font))


def test_a_gpu_has_the_colour_of_the_tenant_who_holds_it(font: Path) -> None:
    for text in by_day_and_night(svg(LIVE)):
        picture = rendered(text, font)

        def legend(said: str, picture: Rendered = picture) -> Colour:
            left, top, _, bottom = picture.label(said).box
            return picture.colour(left - 14 * ZOOM, (top + bottom) // 2)

        gpus = {number: picture.behind(picture.label(f"{number}")) for number in range(1, 9)}
        acme, b = legend("acme · up to 4 GPUs"), legend("b · up to 4 GPUs")
        assert (gpus[2], gpus[5]) == (acme, b)
        free = {colour for number, colour in gpus.items() if number not in (2, 5)}
        assert len({acme, b} | free) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('y="40" fill="#ffffff"', "cannot be read"),
        ('y="40" fill="#777777" x="90"', "is cut off"),
        ('y="25" fill="#111111"', "are on one another"),
        ('y="40" fill="none"', "cannot be read"),
        ('y="400"', "is not to be seen"),
    ],
)
def test_what_cannot_be_read_is_noticed(words: str, said: str, font: Path) -> None:
    at = "" if "x=" in words else 'x="10" '
    text = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="100" height="50" font-family="sans-serif">'
        '<rect width="100" height="50" fill="#eeeeee"/>'
        f'<text x="10" y="20">one</text><text {at}{words}>two</text></svg>'
    )
    with pytest.raises(AssertionError, match=said):
        check(rendered(text, font))
