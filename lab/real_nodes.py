"""The real nodes of a lab: what images they have, and how they are started beside the rest."""

from collections.abc import Callable
from pathlib import Path

from lab import images, nodes
from lab.issuer import IssuerStatus
from lab.spec import LabSpec

FOLDER = "nodes"
_REGISTRY = "docker.io"
"""Of images that are named without one."""

Report = Callable[[str], None]


def archives(spec: LabSpec, report: Report) -> tuple[Path, ...]:
    """The images that the nodes have from the start, written if they are not there.

    Raises:
        ToolError: a part of one cannot be had.
    """
    if not spec.real:
        return ()
    ours = (images.caas(f"{_REGISTRY}/{spec.image}", report).archive,) if spec.image else ()
    proofs = (images.python(report).archive,) if spec.proofs else ()
    return (*images.basic(report), images.stand_in(report).archive, *ours, *proofs)


def start(
    folder: Path, spec: LabSpec, known: tuple[Path, ...], issued: IssuerStatus, report: Report
) -> None:
    """Have the real nodes of a lab; without any, those that ran are stopped.

    Args:
        folder: the lab's, whose control plane and hosts run.
        spec: what it is asked to have.
        known: what `archives` gave.
        issued: its issuer, which programs in pods ask for its keys.
        report: receives a line for each step that takes time.

    Raises:
        NodesError: they did not come up.
    """
    if not spec.real:
        nodes.stop(folder / FOLDER)
        return
    nodes.start(
        folder / FOLDER,
        nodes.NodesSpec(
            control_plane=folder,
            nodes=spec.machines,
            images=known,
            hosts=folder / "hosts",
            joins=tuple(sorted(spec.joins & spec.real)),
            ports=(issued.port,) if issued.port else (),
            aliases=dict.fromkeys(sorted(spec.proofs - {images.PYTHON}), images.PYTHON),
        ),
        report,
    )
