import pytest

from gpuclusters.domain import quantity


@pytest.mark.parametrize(("millicores", "text"), [(1000, "1"), (1500, "1500m"), (250, "250m")])
def test_cpu_is_spelled_as_kubernetes_spells_it(millicores: int, text: str) -> None:
    assert quantity.cpu(millicores) == text


@pytest.mark.parametrize(("mib", "text"), [(10240, "10Gi"), (1536, "1536Mi"), (320, "320Mi")])
def test_memory_is_spelled_as_kubernetes_spells_it(mib: int, text: str) -> None:
    assert quantity.memory(mib) == text
