"""Where the containerd of each distribution is, and what the GPU Operator's toolkit is told of it."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, partial

from gpuclusters.compat.dated_table import Row, Table
from gpuclusters.compat.versions import release

SETS_DEFAULT = (
    *("CONTAINERD_SET_AS_DEFAULT", "DOCKER_SET_AS_DEFAULT"),
    "NVIDIA_RUNTIME_SET_AS_DEFAULT",
)
"""Variables of the toolkit by which its runtime becomes the default one."""


class ContainerdDistribution(StrEnum):
    """Who packaged a cluster that is there."""

    KUBEADM = "kubeadm"
    K3S = "k3s"
    RKE2 = "rke2"
    MICROK8S = "microk8s"
    EGX = "egx"


class Seen(Row):
    """What a node shows of its distribution."""

    suffix: str = ""
    label: str = ""
    annotation: str = ""

    def in_node(self, kubelet: str, labels: Mapping[str, str], notes: Mapping[str, str]) -> bool:
        """Whether it is there; `notes` are the node's annotations."""
        shown = self.suffix and self.suffix in kubelet
        return bool(shown or self.label in labels or self.annotation in notes)


class Told(Row):
    """What the toolkit of a release of the operator writes, and has to be told."""

    drop_in: str
    sets: Mapping[str, str]
    default_runtime: str

    def variables(self, *, default_runtime: bool) -> dict[str, str]:
        """The environment of the toolkit."""
        chosen = {self.default_runtime: str(default_runtime).lower()}
        return {**self.sets, **(chosen if self.default_runtime else {})}


class ContainerdPlace(Row):
    seen: Seen
    config: str
    socket: str
    written: bool
    releases: Mapping[str, Told]

    def told(self, operator: str) -> Told:
        """What holds for a release of the operator, `v26.7.0`; of the newest one that is not newer."""
        wanted = release(operator)
        fitting = [one for first, one in self.releases.items() if release(first) <= wanted]
        return (fitting or [*self.releases.values()])[-1]

    def files(self, operator: str) -> str:
        """Where the toolkit of a release leaves its settings, for messages."""
        return self.told(operator).drop_in or self.config


class _Places(Table):
    places: Mapping[ContainerdDistribution, ContainerdPlace]


_table = cache(partial(_Places.packaged, "containerd_places"))


def place(distribution: ContainerdDistribution) -> ContainerdPlace:
    return _table().places[distribution]


def shown(
    kubelet: str, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> ContainerdDistribution | None:
    """Whose node this is; None where it does not show. What is made with kubeadm shows as kubeadm."""
    found = (
        one
        for one, where in _table().places.items()
        if where.seen.in_node(kubelet, labels, annotations)
    )
    return next(found, None)
