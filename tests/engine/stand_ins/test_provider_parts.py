"""What the stand-ins share: differences, values, messages without secrets."""

from __future__ import annotations

import pytest
from google.protobuf import struct_pb2

from engine import paths
from engine.stand_ins.comparison import compare, without_ignored
from engine.stand_ins.redaction import redact
from engine.stand_ins.values import decode, mark_secrets
from engine.values import REFERENCE, SIGNATURE, UNKNOWN, Secret, Unknown
from tests.fixtures.tables import beside

ROWS = beside(__file__, "../rows.yaml")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        *ROWS["compared"],
        ({"a": Secret(1)}, {"a": 1}, {}),
        ({"a": 1}, {"a": UNKNOWN}, {"a": "UPDATE"}),
        ({}, {"a": UNKNOWN}, {"a": "ADD"}),
        ({"a": {"b": 1}}, {"a": UNKNOWN}, {"a": "UPDATE"}),
    ],
)
def test_changes_are_found_with_their_kind(old, new, expected) -> None:
    assert {paths.render(path): kind.name for path, kind in compare(old, new).items()} == expected


def test_ignored_paths_and_what_is_in_them_do_not_count() -> None:
    changes = compare({"a": {"b": 1, "c": 1}, "l": [1]}, {"a": {"b": 2, "c": 2}, "l": [2]})
    left = without_ignored(changes, ["a.b", "l[*]"])
    assert list(left) == [("a", "c")]


@pytest.mark.parametrize(
    ("id_", "expected"), [({"id": "ns/x"}, "ns/x"), ({}, "urn:x"), ({"id": ""}, "")]
)
def test_a_resource_reference_arrives_as_its_id_or_a_component_as_its_urn(id_, expected) -> None:
    struct = struct_pb2.Struct()
    struct.update({"r": {SIGNATURE: REFERENCE, "urn": "urn:x", **id_}})
    assert decode(struct) == {"r": expected}


def test_the_unknown_of_any_type_is_unknown() -> None:
    struct = struct_pb2.Struct()
    struct.update({"list": "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2"})
    assert isinstance(decode(struct)["list"], Unknown)


def test_outputs_are_secret_where_their_inputs_are() -> None:
    outputs = {"spec": {"token": "t", "plain": 1, "list": ["a", "b"]}, "status": {"token": "t"}}
    inputs = {"spec": {"token": Secret("t"), "plain": 1, "list": [Secret("a"), "b"]}}
    assert mark_secrets(outputs, inputs) == {
        "spec": {"token": Secret("t"), "plain": 1, "list": Secret(["a", "b"])},
        "status": {"token": "t"},
    }


def test_a_message_shows_no_secret_in_any_of_its_forms() -> None:
    key = "-----BEGIN KEY-----\nabcdefgh\n-----END KEY-----\n"
    properties = {
        "nested": [{"key": Secret(key)}],
        "password": Secret("hunter2"),
        "open": "visible",
    }
    message = "got hunter2 and aHVudGVyMg== and abcdefgh, but visible"
    assert redact(message, properties) == "got [secret] and [secret] and [secret], but visible"
    short = {"a": Secret("1"), "b": Secret("no")}  # which would blot out the message
    assert redact("port 1 is no port", short) == "port 1 is no port"
