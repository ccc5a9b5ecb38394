"""Rules declare what they read, so that a mistake elsewhere neither silences nor deceives them."""

from __future__ import annotations

from typing import Any

from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.stack import parse
from tests.unit.config.documents import accepted, base, caas, faults, patched

SECTIONS = frozenset(CaasConfig.model_fields)


def test_a_rule_speaks_of_valid_items_beside_a_broken_one_by_their_place_in_the_file() -> None:
    document = caas(tenants=[{"name": 5, "gpus": 1}, {"name": "acme", "gpus": 99}])
    assert [fault.path for fault in faults(document)] == [
        ("caas", "tenants", 0, "name"),
        ("caas", "tenants", 1, "gpus"),
    ]


def test_a_total_is_not_judged_while_an_item_is_broken() -> None:
    document = caas(nodes=[{"name": "hgx-01"}, {"name": 2}], tenants=[{"name": "acme", "gpus": 16}])
    assert [fault.path for fault in faults(document)] == [("caas", "nodes", 1, "name")]


def test_a_broken_section_does_not_silence_the_others() -> None:
    document = caas(
        hosts={"source": "gcp"},
        kubernetes="yes",
        versions={"fabric-manager": "latest"},
        partition_layout=[5],
    )
    assert {fault.path[1] for fault in faults(document)} == {
        "hosts",
        "kubernetes",
        "versions",
        "partition-layout",
    }


def test_an_unknown_key_does_not_silence_the_rules_about_its_neighbours() -> None:
    document = caas(tenants=[{"name": "kube-x", "gpus": 99, "colour": "red"}])
    assert [fault.path[-1] for fault in faults(document)] == ["gpus", "colour"]


def test_what_one_rule_says_is_not_said_again_by_another() -> None:
    document = caas(tenants=[{"name": "acme", "gpus": 1}, {"name": "acme", "gpus": 1}])
    assert [fault.path for fault in faults(document)] == [("caas", "tenants", 1, "name")]


def test_sections_of_other_cluster_types_are_not_read() -> None:
    accepted(patched(base(), {"rke2": {"anything": [1]}, "usernetes": 7}))


def test_a_document_that_is_its_own_part_is_refused() -> None:
    document = base()
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    document["caas"]["network"] = loop
    parsed = parse(document)
    assert isinstance(parsed, list)
    assert "nested too deeply" in str(parsed[0])


def test_a_number_that_python_refuses_to_print_is_refused_all_the_same() -> None:
    document = caas(tenants=[{"name": "acme", "gpus": 10**5000}], partition_layout=[10**5000])
    said = [str(fault) for fault in faults(document)]
    assert len(said) == 2
    assert all("bits" in line for line in said), said


def test_keys_that_are_spelled_like_the_validators_own_marks_are_keys_all_the_same() -> None:
    document = caas(hosts={"source": "lab", "lab": 1}, network={"[key]": 1})
    document["caas"]["[key]"] = 1
    assert [fault.path for fault in faults(document)] == [
        ("caas", "hosts", "lab"),
        ("caas", "network", "[key]"),
        ("caas", "[key]"),
    ]
    pods = faults(caas(tenants=[{"name": "a", "gpus": 1, "extra-quota": {"[key]": "1", "": "1"}}]))
    assert [fault.path[-1] for fault in pods] == [""]
    boards = faults(caas(nodes=[{"name": "a", "gpus": {"9": {}}}]))
    assert {fault.path for fault in boards} == {("caas", "nodes", 0, "gpus", "9")}


def test_a_wrong_value_silences_only_the_rules_that_ask_for_it() -> None:
    document = caas(
        service_vm={"internal-port": 22, "memory-mib": "much"},
        nodes=[{"name": "hgx-01", "memory-gib": "much"}, {"name": "hgx-01"}],
    )
    assert [fault.path[1:] for fault in faults(document)] == [
        ("nodes", 0, "memory-gib"),
        ("nodes", 1, "name"),
        ("service-vm", "internal-port"),
        ("service-vm", "memory-mib"),
    ]


def test_a_list_with_one_wrong_entry_is_not_called_too_short() -> None:
    nfs = {"servers": ["10.30.0.1"], "mounted-by": "guest"}
    (fault,) = faults(
        caas(
            tenants=[{"name": "acme", "gpus": 8, "nfs": {**nfs, "servers": ["10.30.0.1.9"]}}],
            network={"storage-cidrs": ["10.30.0.0/24"]},
        )
    )
    assert fault.path == ("caas", "tenants", 0, "nfs", "servers", 0)
    assert fault.code == "config.refused-value"
