"""Every code is told about by `explain`, and every error of ours has one."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import gpuclusters
from gpuclusters.cli.errors import RunError, UsageError
from gpuclusters.cli.explain import catalogue
from gpuclusters.cli.main import app
from gpuclusters.core.errors import AdapterError, code_of
from gpuclusters.providers.properties import FOR_THE_USER


def test_every_code_can_be_explained() -> None:
    told = CliRunner().invoke(app, ["explain", "--json"])
    assert told.exit_code == 0
    known = {one["code"]: one for one in json.loads(told.stdout)}
    assert known.keys() == catalogue().keys()
    assert [code for code, one in known.items() if not (one["means"] and one["do"])] == []
    open_places = [code for code, one in known.items() if re.search(r"(?<!\$)\{\w+\}", one["do"])]
    assert open_places == [], "a place that a message fills"


def test_a_key_is_explained_with_what_it_takes_its_default_and_the_keys_below_it() -> None:
    told = CliRunner().invoke(app, ["explain", "gke.network"]).stdout.splitlines()
    assert told[0] == "gke.network"
    assert "  takes:   mapping" in told
    assert "  default: required" in told
    assert any(
        re.match(r"  cidr: +Range of the nodes\..* \(IPv4 range; required\)$", line)
        for line in told
    )


def test_a_name_of_a_code_and_of_a_key_is_explained_as_both() -> None:
    told = json.loads(CliRunner().invoke(app, ["explain", "rke2.version", "--json"]).stdout)
    assert told["means"] == "RKE2 is of another release than declared."
    (place,) = told["places"]
    assert place["paths"] == ["rke2.version"]
    assert (place["values"], place["default"]) == ("text", "required")


def test_the_key_of_each_variant_says_which_one_it_is() -> None:
    told = json.loads(CliRunner().invoke(app, ["explain", "caas.hosts.machines", "--json"]).stdout)
    assert told["key"] == "caas.hosts.machines"
    assert told["places"][0]["paths"] == ["caas.hosts (source: existing).machines"]


def test_a_name_that_nothing_has_gets_the_nearest() -> None:
    told = CliRunner().invoke(app, ["explain", "rke2.operatr"])
    assert told.exit_code != 0
    assert "did you mean rke2.operator?" in str(told.exception)


def test_codes_can_be_typed_and_searched_for() -> None:
    odd = [code for code in catalogue() if not code.replace(".", "-").replace("-", "").isalnum()]
    assert odd == []
    assert all(code == code.lower() and not code.startswith("-") for code in catalogue())


def _below(kind: type[BaseException]) -> Iterator[type[BaseException]]:
    yield kind
    for one in kind.__subclasses__():
        yield from _below(one)


@pytest.mark.parametrize("family", [*FOR_THE_USER, UsageError, RunError])
def test_every_class_whose_text_is_for_users_has_a_code_that_is_listed(
    family: type[BaseException],
) -> None:
    for module in pkgutil.walk_packages(gpuclusters.__path__, "gpuclusters."):
        if "scripts" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for kind in _below(family):
        if not kind.__module__.startswith("gpuclusters."):
            continue
        code = getattr(kind, "code", None) or vars(kind).get("error_id")
        assert code in catalogue() or kind.__name__ in ("FabricError", "Refused"), kind


def test_a_class_without_a_code_of_its_own_has_that_of_its_family() -> None:
    class NarrowError(AdapterError):
        """Nobody lists it."""

    assert code_of(NarrowError("a", "b", "c", "d")) == "remote.failed"
