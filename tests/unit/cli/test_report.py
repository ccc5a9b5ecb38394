"""What is printed after an `up` in the lab."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from gpuclusters.cli.project import Project
from gpuclusters.cli.reach import Access, ApiAddress
from gpuclusters.cli.report import of_caas, show


@pytest.mark.attack(
    by="whoever reads a terminal or the log of a pipeline",
    tries="take a tenant's token from what `make up` printed",
    stopped_by="the path of its file is printed, which its owner alone may read",
)
def test_where_a_token_is_gets_printed_and_not_the_token(tmp_path: Path) -> None:
    lab = tmp_path / ".lab"
    (lab / "tokens").mkdir(parents=True)
    (lab / "tokens" / "acme").write_text("a-token-of-acme")
    access = Access(
        ApiAddress("https://localhost:8080", lab / "ca.crt", "127.66.0.1"),
        {"acme": lab / "tokens" / "acme"},
    )
    said = io.StringIO()

    summary = of_caas(Project(tmp_path, lab), "dev", {}, access)
    show(Console(file=said, width=200), summary, unchanged=True)

    assert ".lab/tokens/acme, good for a day" in said.getvalue()
    assert (
        "--cacert .lab/ca.crt --connect-to ::127.66.0.1: https://localhost:8080/v1"
        in said.getvalue()
    )
    assert "a-token-of-acme" not in said.getvalue()
