"""What inspect scripts print, as models."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from pydantic import ValidationError

from gpuclusters.core.facts import Facts, Yes


class Device(NamedTuple):
    address: str
    driver: str = ""


class Machine(Facts):
    boot_id: str = ""
    said: str = ""
    uid: int | None = None
    smi: int = 127
    node: Yes = False
    user_enabled: Yes = False
    held: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()
    shown: tuple[str, ...] = ()
    range: tuple[tuple[int, int], ...] = ()
    gpu: tuple[Device, ...] = ()
    package: Mapping[str, str] = {}


def test_the_type_of_a_field_says_how_its_lines_are_read() -> None:
    found = Machine.parse(
        "boot-id a-b\nsaid one\nsaid two words\nuid 0\nnode yes\nuser-enabled enabled\nheld a\nheld b\n"
        "ports 22 6443\nshown Tesla V100\nshown H100\nrange 1 2\nrange 3 4\ngpu 00:1 nvidia\ngpu 00:2 \n"
        "package a 1.0\npackage b 2 of 3\nwhat nobody asks for\n"
    )
    assert (found.boot_id, found.said, found.uid, found.smi) == ("a-b", "one two words", 0, 127)
    assert (found.node, found.user_enabled) == (True, True)
    assert (found.held, found.ports) == ({"a", "b"}, {22, 6443})
    assert found.shown == ("Tesla V100", "H100")
    assert found.range == ((1, 2), (3, 4))
    assert found.gpu == (Device("00:1", "nvidia"), Device("00:2"))
    assert found.package == {"a": "1.0", "b": "2 of 3"}


@pytest.mark.parametrize(
    "said", ["user-enabled", "user-enabled disabled", "user-enabled false", ""]
)
def test_what_is_not_said_to_be_so_is_not(said: str) -> None:
    assert Machine.parse(f"{said}\n") == Machine()


def test_a_value_of_another_type_is_an_error_and_no_guess() -> None:
    with pytest.raises(ValidationError, match="smi"):
        Machine.parse("smi many\n")
