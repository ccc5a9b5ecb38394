"""A chart beside the stack is the one that was checked, or the stack is refused at preview."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from gpuclusters.config.loader import chart_faults
from tests.unit.config.documents import accepted, caas, lines

CONTENT = b"a chart"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
CHART = {"source": "file", "path": "charts/kata-deploy-4.1.0.tgz", "sha256": DIGEST}


def said(project: Path, **changes: Any) -> list[str]:
    config = accepted(caas(**changes)).section
    return lines(chart_faults(config, project))


def test_the_archive_with_the_checksum_is_taken(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "kata-deploy-4.1.0.tgz").write_bytes(CONTENT)
    assert said(tmp_path, kata={"chart": CHART}, storage={"csi-driver-chart": CHART}) == []


def test_another_file_is_refused_with_its_checksum(tmp_path: Path) -> None:
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "kata-deploy-4.1.0.tgz").write_bytes(b"something else")
    (one,) = said(tmp_path, kata={"chart": CHART})
    assert one.startswith("caas.kata.chart.sha256: is not the checksum of charts/kata")
    assert hashlib.sha256(b"something else").hexdigest() in one


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    (one,) = said(tmp_path, storage={"csi-driver-chart": CHART})
    assert "caas.storage.csi-driver-chart.path: cannot be read: no such file" in one
    assert "helm pull" in one


def test_charts_of_a_registry_are_helms_business(tmp_path: Path) -> None:
    assert said(tmp_path, kata={"chart": {"source": "registry"}}) == []
