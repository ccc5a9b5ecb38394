import pytest

from gpuclusters.core import quantity


@pytest.mark.parametrize(("millicores", "text"), [(1000, "1"), (1500, "1500m"), (250, "250m")])
def test_cpu_is_spelled_as_kubernetes_spells_it(millicores: int, text: str) -> None:
    assert quantity.cpu(millicores) == text


def test_amounts_are_equal_however_they_are_spelled() -> None:
    written = {"cpu": "1", "memory": "1Gi", "count": "2000"}
    assert quantity.same_quantities(written, {"cpu": "1000m", "memory": "1024Mi", "count": "2k"})
    assert not quantity.same_quantities(written, {**written, "memory": "1G"})
    assert not quantity.same_quantities({"a": "1"}, {"a": "1", "b": "1"})
    fractions = {"cpu": "500m", "memory": "1.5", "count": "1e3"}
    assert quantity.same_quantities(fractions, {"cpu": "0.5", "memory": "1500m", "count": "1k"})
    with pytest.raises(ValueError, match="no Kubernetes quantity"):
        quantity.parse_quantity("four")


@pytest.mark.parametrize(("mib", "text"), [(10240, "10Gi"), (1536, "1536Mi"), (320, "320Mi")])
def test_memory_is_spelled_as_kubernetes_spells_it(mib: int, text: str) -> None:
    assert quantity.memory(mib) == text
