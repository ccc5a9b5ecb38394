"""How GPUs are cut by MIG: profiles of a product, whether several fit, what NVIDIA's named layouts mean.

Sources: NVIDIA MIG user guide (placements), mig-parted (names of layouts). An instance takes neighbouring
memory slices and may begin at certain ones only, which is why seven slices do not hold every sum of seven.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuclusters.compat import gpu_products
from gpuclusters.compat.gpu_products import Family, Kind

DISABLED = "all-disabled"
ENABLED = "all-enabled"
BALANCED = "all-balanced"
_ALL = "all-"
_BALANCED = {"seven": {"1x1": 2, "2x2": 1, "3x4": 1}, "four": {"1x1": 2, "2x2": 1}}
"""Two of the smallest, one of the next, and one of 3 slices where there are seven."""

Slices = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class MigNode:
    layout: str
    """As the MIG manager's configuration calls it, such as `all-1g.10gb`."""
    expected: Mapping[str, int]
    """By resource, what the node offers then: `nvidia.com/mig-1g.10gb: 56`, or with strategy single
    `nvidia.com/gpu: 56`."""


def family(product: str) -> Family | None:
    """How a product can be cut; None if it cannot."""
    name = gpu_products.product(product).mig
    return None if name is None else gpu_products.table().families[name]


def profiles(product: str) -> tuple[str, ...]:
    """Every profile of a product, the smallest first; empty if it cannot be cut."""
    found = family(product)
    return () if found is None else (*found.profiles, *found.single)


def problem(product: str, slices: Slices) -> str | None:
    """Why one GPU of this product cannot be cut so; None if it can."""
    found = family(product)
    if found is None:
        return f"{product} cannot be cut by MIG"
    for profile in slices:
        if profile not in profiles(product):
            return f"{product} has no profile {profile}; it has {', '.join(profiles(product))}"
    for profile, count in slices.items():
        if count > (most := most_of(found, profile)):
            return f"{count} × {profile} do not fit: of it alone a GPU holds {most}"
    kind = gpu_products.table().kinds[found.kind]
    shapes = {profile: found.profiles[found.single.get(profile, profile)][0] for profile in slices}
    wanted = [shapes[profile] for profile, count in slices.items() for _ in range(count)]
    if not _fit(kind, wanted):
        text = " + ".join(f"{count} × {profile}" for profile, count in slices.items())
        return f"{text} do not fit on one GPU: there is no placement on its {kind.slices[1]} memory slices"
    return None


def _fit(kind: Kind, wanted: Sequence[str]) -> bool:
    """Whether all instances have a place: tried one after the other, the largest first."""
    compute = sum(int(shape.partition("x")[0]) for shape in wanted)
    if compute > kind.slices[0]:
        return False
    order = sorted(wanted, key=lambda shape: -int(shape.partition("x")[2]))

    def place(position: int, taken: frozenset[int]) -> bool:
        if position == len(order):
            return True
        size = int(order[position].partition("x")[2])
        for start in kind.starts[order[position]]:
            cells = frozenset(range(start, min(start + size, kind.slices[1])))
            if not cells & taken and place(position + 1, taken | cells):
                return True
        return False

    return place(0, frozenset())


def layouts(product: str) -> Mapping[str, Slices]:
    """The layouts that the MIG manager brings for a product, and what each means on it.

    `all-disabled` and `all-enabled` are layouts without slices.
    """
    found = family(product)
    if found is None:
        return {DISABLED: {}}
    brought: dict[str, Slices] = {DISABLED: {}, ENABLED: {}}
    if found.kind in _BALANCED:
        plain = {
            shape: profile
            for profile, (shape, _, _) in reversed(list(found.profiles.items()))
            if "+" not in profile and "-" not in profile
        }
        brought[BALANCED] = {plain[shape]: n for shape, n in _BALANCED[found.kind].items()}
    for profile in profiles(product):
        # Attributes follow a dot, since a label holds no `+`.
        brought[_ALL + profile.replace("+", ".")] = {profile: most_of(found, profile)}
    return brought


def most_of(found: Family, profile: str) -> int:
    """How many instances of one profile a GPU holds, without any other."""
    return 1 if profile in found.single else found.profiles[profile][2]
