"""Nothing that comes from a plan becomes markup, a mention, a control character or a leaked secret."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuclusters.review.document import document
from gpuclusters.review.html import page
from gpuclusters.review.markdown import markdown
from gpuclusters.review.review import Failure
from gpuclusters.review.text import (
    GITHUB,
    code,
    is_secret_name,
    marker,
    masked,
    masked_text,
    prose,
    visible,
)
from tests.review.catalogue import handmade
from tests.review.reviewing import comment, reviewed

FILE = "gpu-clusters:gpu:HostFile"
HOSTILE = (
    "</details><script>alert(1)</script>",
    "```\n</details>\n# owned",
    "`` `x` ```` ~~~",
    "@everyone closes #1 ![x](http://evil/a.png) [a](javascript:1) www.evil.com",
    "a|b|c\r\nd\te\x1b[31m\x00\x7f",
    "\u202egnp.exe\u200b\u2066",
    "-->x<!-- gpu-clusters review test -->",
    "<img src=x onerror=alert(1)>",
    "😀𝔘𝔫𝔦 ﷽ é",
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs)
        if tag not in ("meta", "rect", "circle", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "circle"):
            assert self.open.pop() == tag


def outside_of_code(text: str) -> str:
    """The Markdown without fences and code spans, as CommonMark reads them."""
    kept, fence = [], ""
    for line in text.splitlines():
        found = re.match(r"(`{3,})", line)
        if fence:
            fence = "" if found and found[1] == fence and line.strip() == fence else fence
        elif found:
            fence = found[1]
        else:
            kept.append(line)
    assert not fence, "a fence is never closed"
    return re.sub(r"(?<![`\\])(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", "\n".join(kept))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_stays_a_name(name: str) -> None:
    inputs = {
        "connection": handmade.connection("gpu-01"),
        "path": name,
        name: name,
        "content": f"a\n{name}\n",
    }
    found = reviewed(
        handmade.step("delete", FILE, name, inputs),
        handmade.step(
            "update", FILE, f"x{name}", inputs, {**inputs, "path": "b", "content": f"b\n{name}"}
        ),
        handmade.step(
            "create",
            "gpu-clusters:gpu:TenancyPolicy",
            "t",
            None,
            {"tenant": name, "cluster": name},
        ),
        handmade.step("delete", "kubernetes:core/v1:Namespace", name, {"metadata": {"name": name}}),
    )
    text = comment(found)
    assert text.rstrip().endswith(marker("test", "review"))
    plain = outside_of_code(text)
    assert set(re.findall(r"(?<!\\)</?([a-z]+)", plain)) <= {"details", "summary", "code"}
    assert plain.count("<details") == plain.count("</details>")
    assert not re.search(r"(?<!\\)(\]\(|!\[)", plain)
    assert not re.search(r"@[A-Za-z]|#\d", re.sub(r"<code>.*?</code>", "", plain))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_text_in_the_page(name: str) -> None:
    machine = {
        "connection": {**handmade.connection("gpu-01"), "host": name},
        "devices": [{"name": "1"}],
    }
    found = reviewed(
        handmade.step("create", "gpu-clusters:gpu:CdiSpec", name, None, machine),
        handmade.step("create", *handmade.CLUSTER, None, {}),
    )
    tags = Tags()
    html = page([found, Failure(name, name)])
    tags.feed(html)
    assert not tags.open
    assert not tags.seen & {"script", "img", "iframe", "link"}
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", html)


@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_stays_in_its_line_and_in_its_code(text: str) -> None:
    assert "\n" not in visible(text)
    assert "\n" not in prose(text)
    shown = code(text)
    run = re.match(r"`+", shown)
    assert run
    assert shown.endswith(run[0])
    assert run[0] not in shown[len(run[0]) : -len(run[0])].replace("`" * (len(run[0]) + 1), "")


SECRETS = {
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----": "abc\n",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345": "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "glpat-ABCDEFGHIJKLMNOPqrst": "glpat-ABCDEFGHIJKLMNOPqrst",
    "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhY21lIn0.c2lnbmF0dXJlc2lnbmF0dXJl": "c2lnbmF0dXJl",
    "https://user:hunter2secret@registry.example.com/x": "hunter2secret",
    "Authorization: Bearer abcdefghijklmnop": "abcdefghijklmnop",
    "pul-0123456789abcdef0123456789abcdef01234567": "pul-0123456789abcdef",
}


@pytest.mark.parametrize(("secret", "needle"), SECRETS.items())
def test_what_looks_like_a_secret_is_shown_nowhere(secret: str, needle: str) -> None:
    old: dict[str, Any] = {
        "note": "x",
        "deep": [{"text": f"a {secret}"}],
        "manifest": f"a: 1\nb: {secret}\n",
    }
    new = {**old, "note": secret, "manifest": f"a: 2\nb: {secret}\n"}
    found = reviewed(
        handmade.step("update", FILE, "f", old, new), handmade.step("create", FILE, "g", None, new)
    )
    whole = comment(found) + page([found]) + json.dumps(document([found]))
    assert needle not in whole
    assert needle not in masked_text(f"failed: {secret}")


def test_secrets_by_name_and_all_of_a_kubernetes_secret_are_masked() -> None:
    kept = {"host_key": "ssh-ed25519 AAAA", "secretName": "n"}
    secrets = {"password": "x", "apiKey": "y", "nested": {"private_key": "z"}}
    hidden = {"password": "[secret]", "apiKey": "[secret]", "nested": {"private_key": "[secret]"}}
    assert masked({**secrets, **kept}, "a:b:C") == {**hidden, **kept}
    assert masked({"stringData": {"a": "b"}, "__provider": "p"}, "kubernetes:core/v1:Secret") == {
        "stringData": {"a": "[secret]"}
    }
    assert is_secret_name("bmc-password")
    assert not is_secret_name("imagePullSecrets")


def test_sealed_secrets_of_the_event_form_are_masked() -> None:
    sealed = {
        "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
        "plaintext": '"open sesame"',
    }
    found = reviewed(handmade.step("create", FILE, "f", None, {"value": sealed, "list": [sealed]}))
    assert "sesame" not in comment(found) + json.dumps(document([found]))


def test_thousands_of_changes_fit_into_a_comment_that_is_whole() -> None:
    steps = [
        handmade.step(
            "delete", "kubernetes:core/v1:Namespace", f"space-{n}", {"metadata": {"name": f"s{n}"}}
        )
        for n in range(3_000)
    ]
    found = reviewed(*steps)
    text = comment(found)
    assert len(text) <= GITHUB
    assert text.startswith("## 🔴 dangerous")
    assert "3,000 to delete" in text
    assert text.rstrip().endswith(marker("test", "review"))
    outside_of_code(text)


@pytest.mark.parametrize("most", [3_000, 8_000, 20_000])
def test_a_cut_comment_keeps_its_verdict_and_says_that_it_is_cut(most: int) -> None:
    parents = [("gpu-clusters:caas:Tenant", f"t{n}") for n in range(200)]
    found = reviewed(
        *[handmade.same(*parent, {}) for parent in parents],
        *[
            handmade.step("update", FILE, f"f{n}", {"v": "a" * 50}, {"v": "b" * 50}, parent=parent)
            for n, parent in enumerate(parents)
        ],
    )
    text = markdown([found], key="k", most=most, artifact="review.html of this job")
    assert len(text) <= most
    assert text.startswith("## 🟢 safe")
    assert "review.html of this job" in text
    plain = outside_of_code(text)
    assert plain.count("<details") == plain.count("</details>")
