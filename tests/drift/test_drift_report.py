"""The report: each thing once, in one order, the same bytes, never clean for what nobody saw, harmless."""

from __future__ import annotations

import io
import json
import random
import re
from typing import Any

import pytest
from rich.console import Console

from gpuclusters.drift import rendering
from gpuclusters.drift.rendering import markdown
from gpuclusters.drift.report import (
    CODES,
    DocumentError,
    Finding,
    Looked,
    Report,
    Unseen,
    document,
    report_of,
)
from gpuclusters.review.plan import Action
from gpuclusters.review.text import GITHUB, UNLIMITED, marker
from tests.drift.drifting import finding, report

ALL = [Finding(id_, f"host-{n % 3}", f"thing-{n}", "a", "b") for n, id_ in enumerate(sorted(CODES))]
HOSTILE = (
    "x\n## owned @admin #1 <script>alert(1)</script> ![p](https://evil/x.png) "
    "`code` | **b** \x1b[31m \u202e www.evil.example ghp_0123456789abcdefghijABCDEFGHIJ012345 --> "
    "[l](javascript:1)"
)


def shown(found: Report) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    rendering.show(console, found, 1.0)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def forms(found: Report) -> tuple[str, str, str]:
    return json.dumps(document(found)), markdown(found, most=UNLIMITED), shown(found)


def test_the_order_does_not_depend_on_the_order_in_which_things_were_found() -> None:
    wanted = forms(report("prod", ALL, plan={}))
    for seed in range(5):
        mixed = random.Random(seed).sample(ALL, len(ALL))
        assert forms(report("prod", mixed, plan={})) == wanted
    first = report("prod", ALL).findings
    assert [f.order for f in first] == sorted(f.order for f in first)
    assert len(first) == len(CODES)


def test_exit_codes_say_clean_only_when_everything_was_looked_at() -> None:
    unseen = Unseen("machine hgx-02", "no SSH connection")
    assert report("s", []).exit_code == 0
    assert report("s", [finding()]).exit_code == 1
    assert report("s", [], [unseen]).exit_code == 2
    both = report("s", [finding()], [unseen])
    assert both.exit_code == 2
    for text in forms(both):
        assert "a.service" in text
        assert "hgx-02" in text
    assert report("s", []).verdict == "no drift"
    for text in forms(report("s", [], [unseen])):
        assert "no drift found, and not everything was looked at" in text


def test_the_same_thing_is_told_once_with_all_that_is_known_of_it() -> None:
    named = ("stack.object-changed", "ns", "Deployment x")
    one = finding(*named, up=True, urn="urn:x")
    other = finding(*named, up=False, by="kubectl", urn="urn:x", do="let go")
    for order in ([one, other], [other, one]):
        (told,) = report("s", order).findings
        assert (told.by, told.up, told.remedy) == ("kubectl", False, "let go")
    lines = [finding("driver.loaded-other", what="driver", found=text) for text in ("a", "b", "a")]
    (told,) = report("s", lines).findings
    assert (told.found, told.details) == ("2 differences", ("a", "b"))
    better = [
        finding("vfio.unbound", what="0000:86:00.0"),
        finding("host.unfit", what="preflight.not-on-vfio"),
        finding("host.unfit", "hgx-02", what="preflight.not-on-vfio"),
    ]
    told = {(f.id, f.where) for f in report("s", better).findings}
    assert told == {("vfio.unbound", "hgx-01"), ("host.unfit", "hgx-02")}


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("host.unit-failed", ["cdi.missing"]),
        ("*", []),
        ("host.unit-failed@hgx-01", ["cdi.missing"]),
        ("host.unit-failed@hgx-02", ["cdi.missing", "host.unit-failed"]),
        ("*@hgx-01/*.service", ["cdi.missing"]),
        ("cdi.*@hgx-01//etc/cdi/*", ["host.unit-failed"]),
    ],
)
def test_what_is_ignored_is_left_out_and_counted(pattern: str, left: list[str]) -> None:
    both = [finding(), finding("cdi.missing", what="/etc/cdi/a.json")]
    found = report("s", both, ignore=[pattern])
    assert sorted(f.id for f in found.findings) == left
    assert found.ignored == 2 - len(left)


def test_nothing_in_a_name_becomes_markup_a_control_or_a_leak() -> None:
    said = (HOSTILE,) * 5
    hostile = Finding("stack.object-changed", *said, None, HOSTILE, "urn", (HOSTILE,))
    unseen = Unseen(HOSTILE, HOSTILE, HOSTILE)
    found = report(HOSTILE, [hostile], [unseen], plan={f"a::b::c::{HOSTILE}": Action.UPDATE})
    as_json, as_markdown, as_text = forms(found)
    for text in (as_json, as_markdown, as_text):
        assert "ghp_" not in text
        for character in ("\x1b", "\u202e", "\r"):
            assert character not in text
    mark = marker(found.stack, "drift")
    assert as_markdown.count("<!--") == 1
    assert as_markdown.rstrip().endswith(mark)
    blocks = re.sub(r"```diff.*?```|```.*?```", "", as_markdown.replace(mark, ""), flags=re.DOTALL)
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", blocks)
    assert "<script" not in outside.replace("\\<script", "")
    assert not re.search(r"(?<![\\\w])@admin", outside)
    assert "\n## owned" not in as_markdown
    assert "](https" not in outside.replace("\\]", "").replace("\\(", "")


def test_the_markdown_fits_the_forge_and_keeps_its_head_and_marker() -> None:
    many = [
        finding("stack.object-changed", f"ns-{n}", f"Deployment {n}", details=("x" * 300,) * 5)
        for n in range(2000)
    ]
    text = markdown(report("prod", many, [Unseen("hgx-02", "away")]), most=GITHUB)
    assert len(text) <= GITHUB
    assert text.startswith("## 🟡 stack `prod`: 2,000 findings")
    assert "hgx-02" in text
    assert "left out" in text
    assert text.rstrip().endswith(marker("prod", "drift"))


def test_a_report_is_read_back_as_it_was() -> None:
    every = [*ALL, finding(up=True, details=("a", "b"))]
    plan = {"urn:pulumi:a::b::c::d": Action.UPDATE}
    found = report("prod", every, [Unseen("x", "y", "z")], [Looked("nodes", 2)], plan=plan)
    again = report_of(json.loads(json.dumps(document(found))))
    assert document(again) == document(found)
    unplanned = report("prod", [finding()])
    assert document(report_of(document(unplanned))) == document(unplanned)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"findings": [], "not_looked_at": [], "format": 99},
        {"findings": [{}], "not_looked_at": [], "format": 1},
        {"findings": [{"id": "nothing-known"}], "not_looked_at": [], "format": 1, "stack": "s"},
    ],
)
def test_what_is_no_report_is_refused(value: Any) -> None:
    with pytest.raises(DocumentError):
        report_of(value)


def test_every_kind_says_what_to_do_and_no_placeholder_is_left() -> None:
    for code in CODES:
        assert re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", code)
        one = Finding(code, "W", "T", "D", "F")
        assert one.remedy, code
        assert "{" not in one.remedy, code
    assert Finding("host.unit-failed", "{what}", "{0}").remedy.count("{0}") == 2
    assert Finding("host.unit-failed", "{what}", "{0}").remedy.endswith("on {what}.")


def test_a_code_that_is_no_kind_of_drift_is_told_as_critical() -> None:
    one = Finding("service-vm.no-answer", "hgx-01", "vm")
    assert (one.severity, one.group) == ("critical", "hosts")
    assert one.remedy
