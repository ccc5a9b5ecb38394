"""The lab, found by its entry point: a distribution of its own, which real clusters do without."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from gpuclusters.cli.errors import UsageError
from gpuclusters.cli.project import Project
from gpuclusters.config.cluster import ClusterConfig
from gpuclusters.config.usernetes import UsernetesConfig

Report = Callable[[str], None]


class Choice(Protocol):
    """What the lab's nodes will be and why; `passing` keeps real ones away, `refused`: cannot be as asked."""

    kind: str
    why: str
    refused: bool
    passing: str


class Lab(Protocol):
    """What this command does with a lab; `error` is what its methods raise."""

    error: type[Exception]

    def choice(self, wanted: str) -> Choice: ...
    def kind(self) -> str | None: ...
    def kata(self, kind: str) -> str: ...
    def start(self, kind: str, requests: Sequence[Mapping[str, Any]], report: Report) -> None: ...
    def stop(self, report: Report) -> None: ...
    def remove(self, report: Report) -> bool: ...
    def claim(self) -> None: ...
    def reinstall(self, host: str) -> None: ...
    def execute(self, host: str, line: str) -> int: ...
    def status(self) -> list[dict[str, Any]]: ...
    def missing_tools(self, path: str | None) -> list[str]: ...
    def token(self, tenant: str, seconds: float) -> str: ...
    def authority(self) -> Path: ...
    def pod_address(self, said: str) -> str | None: ...
    def entrance(self, namespace: str, service: str, port: int) -> int: ...


def lab_of(project: Project) -> Lab:
    """The lab of a project; it need not run."""
    for lab in _installed():
        return lab(project.lab_folder)
    raise UsageError(
        "this stack lives in the lab (`source: lab`), which is not installed; "
        "`pip install gpu-clusters-lab gpu-clusters-engine`, or name your own machines",
        "lab.missing",
    )


@cache
def _installed() -> tuple[Callable[[Path], Lab], ...]:
    """What makes the lab of a folder; none where it is not installed."""
    return tuple(found.load() for found in entry_points(group="gpu_clusters", name="lab"))


def described(cluster: ClusterConfig, choice: Choice, *, briefly: bool = False) -> str:
    """The kind of nodes of a cluster, and why it is so unless it is to be said briefly."""
    kind, why = choice.kind, choice.why
    if isinstance(cluster, UsernetesConfig):
        kind, why = "simulated", "those of usernetes are inside of containers of their hosts"
    return f"nodes are {kind}" if briefly else f"nodes are {kind}: {why}"
