"""What no case can be written of: a mistake elsewhere neither silences nor deceives a rule."""

from __future__ import annotations

from typing import Any

from gpuclusters.config.stack import ClusterType, parse
from tests.unit.config.documents import base, caas, faults, patched


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


def test_a_wrong_pool_does_not_silence_what_is_said_about_the_others() -> None:
    document = patched(
        base(ClusterType.RKE2),
        {
            "rke2": {
                "pools": [
                    {"name": "a", "nodes": ["g1"], "gpu": {"product": "a100", "count": 8}},
                    {"name": "b", "nodes": ["g2"], "gpu": {"product": "gb200-186gb", "count": 4}},
                ]
            }
        },
    )
    parsed = parse(document)
    assert isinstance(parsed, list)
    assert [fault.path for fault in parsed] == [
        ("rke2", "pools", 0, "gpu", "product"),
        ("rke2", "pools", 1, "gpu", "product"),
    ]
    assert "a100-sxm4-80gb" in parsed[0].remedy
