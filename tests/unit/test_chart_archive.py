"""A chart beside the stack is the one that was checked, or none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from gpuclusters.adapters.chart_archive import checked
from gpuclusters.adapters.errors import AdapterError

CONTENT = b"a chart"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def test_the_archive_with_the_checksum_is_taken(tmp_path: Path) -> None:
    (tmp_path / "kata.tgz").write_bytes(CONTENT)
    assert checked("kata.tgz", DIGEST, folder=tmp_path) == "kata.tgz"


def test_another_file_is_refused_with_its_checksum(tmp_path: Path) -> None:
    (tmp_path / "kata.tgz").write_bytes(b"something else")
    with pytest.raises(AdapterError, match="another file than configured") as caught:
        checked("kata.tgz", DIGEST, folder=tmp_path)
    assert hashlib.sha256(b"something else").hexdigest() in str(caught.value)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="helm pull"):
        checked("kata.tgz", DIGEST, folder=tmp_path)
