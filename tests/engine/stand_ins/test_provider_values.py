from __future__ import annotations

import pytest
from google.protobuf import struct_pb2

from engine.stand_ins.redaction import redact
from engine.stand_ins.values import decode, mark_secrets
from engine.values import ASSET, REFERENCE, SIGNATURE, UNKNOWN, Asset, Secret, Unknown
from engine.wire import marshal

PROPERTIES = {
    "text": "a",
    "whole": 3,
    "part": 1.5,
    "yes": True,
    "none": None,
    "list": [1, {"deep": Secret({"key": ["s"]})}],
    "unknown": UNKNOWN,
    "secret unknown": Secret(UNKNOWN),
    "empty map": {},
    "empty list": [],
    "file": Asset(ASSET, {"text": "x", "hash": "12"}),
}


def test_properties_survive_the_way_through_a_struct() -> None:
    assert decode(marshal(PROPERTIES)) == PROPERTIES


def test_whole_numbers_come_back_as_integers() -> None:
    assert type(decode(marshal({"replicas": 3}))["replicas"]) is int


def test_an_engine_that_takes_no_secrets_gets_plain_values() -> None:
    struct = marshal({"a": Secret("x"), "b": [Secret(1)]}, secrets=False)
    assert decode(struct) == {"a": "x", "b": [1]}


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


def test_short_secrets_do_not_blot_out_the_message() -> None:
    assert redact("port 1 is no port", {"a": Secret("1"), "b": Secret("no")}) == "port 1 is no port"
