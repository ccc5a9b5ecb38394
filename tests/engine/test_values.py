"""Property values on the wire, in the state, and marked again."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from google.protobuf import struct_pb2
from hypothesis import given, settings

from engine.answers import mark_secrets
from engine.values import (
    ARCHIVE,
    ASSET,
    OUTPUT,
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_STRING,
    Asset,
    Reference,
    Secret,
    Value,
    blinded,
    contains_secret,
    contains_unknown,
    encrypted,
    from_state,
    from_wire,
    plaintext,
    reveal,
    to_state,
    to_wire,
    without_unknowns,
)
from engine.wire import marshal, marshal_value, unmarshal, unmarshal_value

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 52), 1 << 52),
    st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda f: f != int(f)),
    st.text(max_size=8),
    st.just(UNKNOWN),
    st.builds(Reference, st.just("urn:pulumi:s::p::t:m:T::n"), st.sampled_from([None, "id"])),
    st.just(Asset(ASSET, {"text": "hello", "hash": "abc"})),
    st.just(Asset(ARCHIVE, {"path": "./folder"})),
)
KEYS = st.text("abc_.[]\"'", min_size=1, max_size=4)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        inner.filter(lambda v: not isinstance(v, Secret)).map(Secret),
    ),
    max_leaves=8,
)


def same(text: str) -> str:
    return text


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_what_is_sent_arrives_as_it_was(value: Value) -> None:
    message = struct_pb2.Value.FromString(marshal_value(value).SerializeToString())
    assert unmarshal_value(message) == value
    assert unmarshal(marshal({"a": value})) == {"a": value}


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_what_is_stored_is_read_as_it_was(value: Value) -> None:
    assert from_state(to_state(value, encrypted(same)), same) == value
    assert from_state(to_state(value, plaintext), same) == value


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_without_marks_nothing_is_secret(value: Value) -> None:
    assert not contains_secret(reveal(value))
    sent = to_wire(value, secrets=False)
    assert not contains_secret(from_wire(sent))


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_what_is_known_holds_nothing_unknown(values: dict[str, Value]) -> None:
    values = {k: v for k, v in values.items() if not isinstance(v, Reference)}
    assert not any(contains_unknown(v) for v in without_unknowns(values).values())


def test_a_secret_that_did_not_change_keeps_its_ciphertext() -> None:
    stored = {SIGNATURE: SECRET, "ciphertext": '"hidden"'}
    assert to_state(from_state(stored, same), encrypted(lambda _: "new")) == stored


def test_a_secret_shows_in_no_text() -> None:
    assert "hidden" not in repr(Secret("hidden"))
    assert to_state({"a": Secret("hidden")}, blinded) == {"a": "[secret]"}


def test_output_values_become_what_they_hold() -> None:
    assert from_wire({SIGNATURE: OUTPUT, "value": "x", "secret": True}) == Secret("x")
    assert from_wire({SIGNATURE: OUTPUT}) == UNKNOWN


def test_whole_numbers_come_back_as_integers() -> None:
    assert type(unmarshal(marshal({"replicas": 3}))["replicas"]) is int


def test_an_unknown_signature_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown signature 'other'"):
        from_wire({SIGNATURE: "other"})


def test_a_provider_without_references_gets_ids() -> None:
    reference = Reference("urn:pulumi:s::p::t:m:T::n", UNKNOWN)
    assert to_wire(reference, references=False) == UNKNOWN_STRING
    assert to_wire(Reference("urn:x"), references=False) == "urn:x"


def test_secrets_are_marked_again_key_by_key_and_lists_as_a_whole() -> None:
    sent: dict[str, Value] = {
        "tags": {"key": Secret("k"), "level": "high"},
        "parts": [Secret("t"), "plain"],
        "text": Secret("t"),
        "gone": Secret("g"),
    }
    back: dict[str, Value] = {
        "tags": {"key": "k", "level": "high", "more": "m"},
        "parts": ["t", "plain"],
        "text": "t",
        "computed": "t",
    }
    assert mark_secrets(back, sent) == {
        "tags": {"key": Secret("k"), "level": "high", "more": "m"},
        "parts": Secret(["t", "plain"]),
        "text": Secret("t"),
        "computed": "t",
    }
