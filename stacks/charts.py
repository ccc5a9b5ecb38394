"""Which chart a component installs: stated, the lab's for the lab, else the project's own repository."""

from components.helm import Chart
from gpuclusters.config.kubernetes import FileChart, LabChart, RegistryChart

LAB_CHARTS = "lab/charts"


def chart(
    source: RegistryChart | FileChart | LabChart | None,
    *,
    lab: bool,
    repository: str,
    name: str,
    version: str,
) -> Chart:
    """The chart: nothing is pulled for the lab, and one that lies on this machine has its own version."""
    if isinstance(source, FileChart):
        return Chart(reference=source.path)
    if isinstance(source, LabChart) or (source is None and lab):
        return Chart(reference=f"{LAB_CHARTS}/{name}")
    if source is not None and source.repository is not None:
        repository = source.repository
    if repository.startswith("oci://"):
        return Chart(reference=repository, version=version)
    return Chart(reference=name, version=version, repository=repository)
