"""Kubernetes quantities, so that "4000m" and "4" are the same."""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

_SUFFIXES = {
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40, "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"),
    "k": Decimal("1e3"), "M": Decimal("1e6"), "G": Decimal("1e9"),
    "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18"),
}  # fmt: skip


def parse_quantity(text: str) -> Decimal:
    """The number that a quantity stands for; ValueError if it is none."""
    suffix = next((one for one in _SUFFIXES if text.endswith(one)), "")
    try:
        return Decimal(text.removesuffix(suffix)) * _SUFFIXES.get(suffix, Decimal(1))
    except InvalidOperation as error:
        problem = f"{text!r} is no Kubernetes quantity; write it like '4' or '10Gi'"
        raise ValueError(problem) from error


def same_quantities(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether both have the same keys with the same amounts."""
    return one.keys() == other.keys() and all(
        parse_quantity(str(one[k])) == parse_quantity(str(other[k])) for k in one
    )


def cpu(millicores: int) -> str:
    """Thousandths of a core as Kubernetes itself writes them: `1`, `1500m`."""
    return str(millicores // 1000) if millicores % 1000 == 0 else f"{millicores}m"


def memory(mib: int) -> str:
    """MiB as Kubernetes itself writes them: `10Gi`, `1536Mi`. Another spelling would look like drift."""
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
