"""Every rule has a page that says the same as the rule, and no page is without a rule."""

from __future__ import annotations

import json
import re

import pytest

from gpuclusters.policy.rule import Rule
from gpuclusters.policy.rules import RULES
from gpuclusters.policy.settings import configured
from tests.fixtures.policy_environment import ROOT

PAGES = ROOT / "docs" / "policy"
OVERVIEW = (PAGES / "README.md").read_text()


def test_pages_and_rules_are_the_same() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {rule.id for rule in RULES} | {"README"}
    listed = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \| (\w+) \| (.*) \|$", OVERVIEW, re.MULTILINE)
    assert listed == [(rule.id, rule.severity.word, rule.title) for rule in RULES]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_page_says_why_what_and_how_to_fix(rule: Rule) -> None:
    text = (ROOT / rule.page).read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert [h for h in headings if h != "Parameters"] == [
        "Why",
        "What it looks at",
        "How to fix it",
    ]
    title = f"{rule.title[0].upper()}{rule.title[1:]}"
    assert text.startswith(f"# {rule.id}\n\n{title}. Severity: **{rule.severity.word}**")
    fields = type(rule.parameters).model_fields
    rows = re.findall(r"^\| `([\w-]+)` \| `(.*?)` \| (.*) \|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == [str(field.alias) for field in fields.values()]
    for (_, default, meaning), field in zip(rows, fields.values(), strict=True):
        stated = rule.parameters.model_dump(mode="json", by_alias=True)[str(field.alias)]
        assert json.loads(default) == stated
        assert meaning.split("; ")[0].split(",")[0] in str(field.description)


def test_configurations_in_the_pages_are_right() -> None:
    texts = [page.read_text() for page in PAGES.glob("*.md")]
    blocks = [
        block for text in texts for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    ]
    assert blocks
    for block in blocks:
        assert configured(RULES, json.loads(block), "page") != RULES
