"""Stack files: values, defaults and types, and edits that spare what people wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.project import load
from engine.stackconfig import values, yamltext
from engine.stackconfig.effective import effective, refuse_unsupported, validate
from engine.stackconfig.keys import ConfigKey, parse_key
from engine.stackconfig.stackfile import StackFile
from engine.stackconfig.values import Secure
from engine.usererror import UserError
from tests.engine.shellkit import COMMANDS
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")
STACK_FILE = ROWS["stack file"]


def comments(text: str) -> list[str]:
    return [line.split("#", 1)[1] for line in text.splitlines() if "#" in line]


@pytest.mark.parametrize("text", ["", ":", "a:", ":b", "a:b:c"])
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="configuration key"):
        parse_key(text, "gpu")


def test_a_program_gets_objects_as_json_and_scalars_as_they_are_written() -> None:
    def decrypt(ciphertext: str) -> str:
        return {"c": "secret <text>"}[ciphertext]

    tree = values.from_yaml({"b": [1, 2.5, 3.0, True], "a": {"secure": "c"}})
    assert values.text(tree, decrypt) == '{"a":"secret \\u003ctext\\u003e","b":[1,2.5,3,true]}'
    assert values.text(True, decrypt) == "true"
    assert values.text("<plain>", decrypt) == "<plain>"
    assert values.text(3, decrypt) == "3"


@pytest.mark.parametrize(("path", "value"), ROWS["edits"])
def test_a_change_keeps_every_comment(path: list[str], value: object) -> None:
    edited = yamltext.put(STACK_FILE, tuple(path), value)
    assert comments(edited) == comments(STACK_FILE)
    found = yamltext.parse(edited)
    for step in path:
        found = found[step]
    assert found == value


@pytest.mark.parametrize("key", ["gpu:cluster-type", "gpu:text"])
def test_a_removal_keeps_the_comments_of_the_rest(key: str) -> None:
    edited = yamltext.remove(STACK_FILE, ("config", key))
    lost = set(comments(STACK_FILE)) - set(comments(edited))
    assert lost <= {" or rke2"}  # what stood on the removed line itself
    wanted = yamltext.parse(STACK_FILE)
    del wanted["config"][key]
    assert yamltext.parse(edited) == wanted


def test_a_file_with_aliases_is_rewritten_rather_than_damaged() -> None:
    text = "config:\n  a:x: &all {n: 1}\n  a:y: *all\n"
    assert yamltext.parse(yamltext.put(text, ("config", "a:x"), 2)) == {
        "config": {"a:x": 2, "a:y": {"n": 1}}
    }


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12),
    st.sampled_from(
        ["yes", "12:30", "0644", "1e3", "~", "# no", "a: b", "2026-01-01", "two\nlines", ""]
    ),
)
keys = st.sampled_from(["a", "b", "p:c", "on", "with space", "1"])
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
documents = st.dictionaries(keys, trees, min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(document=documents, key=keys, value=trees, flow=st.booleans())
def test_an_edit_says_what_was_asked_for_and_nothing_else_changes(
    document, key, value, flow
) -> None:
    text = yaml.safe_dump(
        {"config": document}, default_flow_style=flow, sort_keys=False, allow_unicode=True
    )
    before = yamltext.parse(text)["config"]
    edited = yamltext.put(text, ("config", key), value)
    assert yamltext.parse(edited) == {"config": {**before, key: value}}
    without = yamltext.remove(edited, ("config", key))
    rest = {k: v for k, v in before.items() if k != key}
    assert (yamltext.parse(without) or {}).get("config", {}) == rest


def test_words_times_and_dates_are_texts_as_for_pulumi() -> None:
    data = yamltext.parse("a: yes\nb: 12:30\nc: 2026-01-01\nd: 0x1F\ne: 0644\nf: 1.5\ng: true\nh:")
    assert data == {
        "a": "yes", "b": "12:30", "c": "2026-01-01", "d": 31, "e": 420, "f": 1.5, "g": True, "h": None,
    }  # fmt: skip


def test_the_file_is_written_only_if_something_changed(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(STACK_FILE)
    file = StackFile.load(path, "gpu")
    before = path.stat().st_mtime_ns
    file.remove(ConfigKey("gpu", "absent"))
    file.save()
    assert path.stat().st_mtime_ns == before
    file.put(ConfigKey("gpu", "size"), "1")
    file.save()
    assert StackFile.load(path, "gpu").config[ConfigKey("gpu", "size")] == "1"


def test_the_last_key_takes_the_section_with_it(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    file = StackFile.load(path, "gpu")
    file.salt = "v1:a"
    file.put(ConfigKey("gpu", "size"), "1")
    file.remove(ConfigKey("gpu", "size"))
    file.save()
    assert path.read_text() == "encryptionsalt: v1:a\n"


@pytest.mark.parametrize(("text", "what"), ROWS["stack files"])
def test_a_stack_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=what) as caught:
        StackFile.load(path, "gpu")
    assert str(path) in str(caught.value)


def project(tmp_path: Path, config: str):
    (tmp_path / "Pulumi.yaml").write_text(f"name: gpu\nruntime: python\nconfig:\n{config}")
    return load(tmp_path)


def test_defaults_fill_what_the_stack_leaves_out(tmp_path: Path) -> None:
    declared = project(
        tmp_path, "  a: one\n  b: {type: integer, default: 2}\n  aws:region: {value: x}\n"
    )
    merged = effective(declared, {ConfigKey("gpu", "a"): "stack"})
    assert merged == {
        ConfigKey("gpu", "a"): "stack",
        ConfigKey("gpu", "b"): 2,
        ConfigKey("aws", "region"): "x",
    }


@pytest.mark.parametrize("key", ["a.b", "a[0]", "'[\"a\"]'"])
def test_a_declaration_that_leads_into_a_value_is_refused(tmp_path: Path, key: str) -> None:
    declared = project(tmp_path, f"  {key}: one\n")
    with pytest.raises(UserError, match="declare the whole value"):
        effective(declared, {})


@pytest.mark.parametrize(("kind", "good", "bad"), ROWS["declared"])
def test_values_have_the_declared_type(tmp_path: Path, kind: str, good: list, bad: list) -> None:
    declared = project(tmp_path, f"  k:\n    type: {kind}\n")
    for value in (*good, *([Secure("c")] if kind == "integer" else [])):
        validate(declared, "dev", {ConfigKey("gpu", "k"): value})
    for value in bad:
        with pytest.raises(UserError, match="must be of type"):
            validate(declared, "dev", {ConfigKey("gpu", "k"): value})


def test_a_key_declared_secret_has_to_be_encrypted(tmp_path: Path) -> None:
    declared = project(tmp_path, "  k: {type: string, secret: true}\n")
    validate(declared, "dev", {ConfigKey("gpu", "k"): Secure("c")})
    with pytest.raises(UserError, match="must be encrypted"):
        validate(declared, "dev", {ConfigKey("gpu", "k"): "plain"})


@pytest.mark.parametrize(("text", "what"), COMMANDS["projects"])
def test_a_project_that_cannot_be_used_is_named_with_its_fault(
    tmp_path: Path, text: str, what: str
) -> None:
    (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(what)) as caught:
        load(tmp_path)
    assert str(tmp_path / "Pulumi.yaml") in str(caught.value)


def test_a_setting_for_another_engine_is_refused() -> None:
    refuse_unsupported({ConfigKey("pulumi", "disable-default-providers"): ["*"]})
    with pytest.raises(UserError, match="pulumi:autonaming"):
        refuse_unsupported({ConfigKey("pulumi", "autonaming"): {"mode": "verbatim"}})
