"""For all configurations: a right one loads, and a wrong one gives nothing but faults."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from docs.schema import schema
from gpuclusters.config.fault import told
from gpuclusters.config.plan import plan
from gpuclusters.config.stack import ClusterType, StackConfig, parse
from gpuclusters.core.codes import listed
from tests.unit.config.documents import FILE, base, document, places, tables
from tests.unit.config.planning import planned
from tests.unit.config.strategies import documents

_slow = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

_strange = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**4000)
    | st.floats()
    | st.text(max_size=30)
    | st.sampled_from(
        ["", " ", "\n", "\0", "💥", "latest", "0000:0f:00.0", "10.0.0.0/8", "../..", "a" * 5000]
    )
    | st.lists(st.integers() | st.text(max_size=5), max_size=9)
    | st.dictionaries(st.text(max_size=8), st.integers(), max_size=3)
    | st.just({"source": "lab"})
    | st.just({"source": []})
    | st.just({"secure": "v1:x"})
    | st.just([[[]]])
)


def _mutate(draw: st.DrawFn, document: dict[str, Any]) -> None:
    place = draw(st.sampled_from([path for path, _ in places(document) if path]))
    parent: Any = document
    for part in place[:-1]:
        parent = parent[part]
    match draw(st.sampled_from(["replace", "delete", "add", "repeat", "rename"])):
        case "delete":
            del parent[place[-1]]
        case "repeat" if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[place[-1]]))
        case "add" if isinstance(parent, dict):
            parent[draw(st.text(max_size=12) | st.integers() | st.none())] = copy.deepcopy(
                draw(_strange)
            )
        case "rename" if isinstance(parent, dict) and isinstance(place[-1], str):
            value = parent.pop(place[-1])
            parent[place[-1].replace("-", "_").upper()] = value
        case _:
            parent[place[-1]] = copy.deepcopy(draw(_strange))


@cache
def _cases(kind: ClusterType) -> list[dict[str, Any]]:
    """Documents of a cluster type that are right, or wrong in one way: those of the rules' cases."""
    return [base(kind), *(document(kind, case) for _, case in tables(kind))]


@st.composite
def _broken(draw: st.DrawFn, whole: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    document = copy.deepcopy(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        if document:
            _mutate(draw, document)
    return document


def _read(document: dict[str, Any]) -> StackConfig | None:
    """What is read, the document left as it is; None if there are faults, each told in full and once."""
    before = copy.deepcopy(document)
    parsed = parse(document)
    assert repr(document) == repr(before)
    if isinstance(parsed, StackConfig):
        return parsed
    assert parsed
    assert len(set(parsed)) == len(parsed)
    for fault in parsed:
        line = told(FILE, fault)
        assert fault.path or fault.problem.startswith("has a key that is no text")
        assert " (got " in fault.problem
        assert fault.remedy
        assert fault.code in listed()
        assert line.isprintable()
        assert len(line) < 1500
    return None


@pytest.mark.parametrize("kind", ClusterType)
@given(data=st.data())
@settings(_slow, max_examples=60)
def test_a_mutated_configuration_gives_faults_or_what_components_take(
    kind: ClusterType, data: st.DataObject
) -> None:
    whole = documents() if kind is ClusterType.CAAS else st.sampled_from(_cases(kind))
    read = _read(data.draw(_broken(whole)))
    if read is not None and read.cluster_type is kind:
        planned(read)


@cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(schema())


@given(documents())
@_slow
def test_a_right_configuration_fits_the_schema_and_can_be_planned(document: dict[str, Any]) -> None:
    _validator().validate({"config": {f"gpu-clusters:{key}": one for key, one in document.items()}})
    parsed = parse(document)
    assert isinstance(parsed, StackConfig), "\n".join(map(str, parsed))
    planned = plan(parsed.section)
    for node in planned.nodes:
        covered = [module for cut in node.partitions for module in cut.modules]
        # Without a declared cut every GPU is in several partitions, of which a lease takes one.
        assert (sorted(covered) if node.declared else sorted(set(covered))) == list(range(1, 9))
        assert not set(node.board.gpus.values()) & set(node.board.service_vm)
    namespaces = [tenant.tenancy.namespace for tenant in planned.tenants]
    assert len(set(namespaces)) == len(namespaces)
    for tenant in planned.tenants:
        assert tenant.share.default_container.memory_gib <= tenant.share.max_container.memory_gib
        assert tenant.share.max_container.memory_gib < tenant.share.total.memory_gib


_any = st.recursive(
    _strange, lambda inside: st.dictionaries(st.text(max_size=5), inside, max_size=3)
)


@given(
    _any.map(lambda section: {"cluster-type": "caas", "caas": section})
    | st.dictionaries(st.sampled_from(["cluster-type", "caas", "rke2", "x"]), _strange)
)
@settings(_slow, max_examples=80)
def test_any_document_at_all_gives_faults(document: dict[str, Any]) -> None:
    assert _read(document) is None


@given(documents(), st.sampled_from(["password", "api-token", "privateKey"]))
@settings(_slow, max_examples=8)
def test_a_secret_that_strays_into_a_section_is_never_shown(
    document: dict[str, Any], key: str
) -> None:
    secret = "hunter2-" * 3
    for _, part in list(places(document["caas"])):
        if isinstance(part, dict):
            part[key] = secret
            parsed = parse(document)
            assert isinstance(parsed, list)
            assert all(secret not in str(fault) for fault in parsed)
            del part[key]
