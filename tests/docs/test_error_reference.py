"""Ids of errors: every one is told about, none is lost, and the page says what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuclusters.errors import catalogue, page, source
from gpuclusters.errors.catalogue import nearest
from gpuclusters.errors.page import GONE, PAGE, released, render
from gpuclusters.errors.sites import families

CLI = Path(__file__).resolve().parents[2] / "gpuclusters" / "cli"


def test_ids_that_were_released_are_still_there() -> None:
    gone = released() - set(catalogue())
    assert not gone, GONE.format(ids=", ".join(sorted(gone)))


def test_the_page_has_every_id() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run `make schema`"


def test_a_release_adds_ids_and_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "RELEASED", tmp_path / "ids.txt")
    page.RELEASED.write_text("no-stack\n", encoding="utf-8")
    page.release()
    assert released() == set(catalogue())
    page.RELEASED.write_text("no-stack\nnobody-knows-this\n", encoding="utf-8")
    with pytest.raises(ValueError, match="are gone: nobody-knows-this"):
        page.release()


def test_every_entry_says_what_it_means_and_what_to_do() -> None:
    silent = [e.id for e in catalogue().values() if not all(e.causes) or not all(e.fixes)]
    assert silent == []
    assert all(entry.causes and entry.fixes for entry in catalogue().values())


def test_ids_can_be_typed_and_searched_for() -> None:
    odd = [id_ for id_ in catalogue() if not id_.replace(".", "-").replace("-", "").isalnum()]
    assert odd == []
    assert all(id_ == id_.lower() and not id_.startswith("-") for id_ in catalogue())


def _families() -> set[tuple[str, str]]:
    return set(families())


@pytest.mark.parametrize("kind", ["UsageError", "RunError", "AdapterError", "Refused"])
def test_families_are_found_in_the_source(kind: str) -> None:
    homes = [name for name, one in _families() if one == kind]
    assert homes
    for name in homes:
        home = source.module(name)
        assert home is not None
        assert kind in [one.name for one in home.classes]


def test_the_nearest_id_is_suggested() -> None:
    assert nearest("[host-key-missmatch]") == "host-key-mismatch"
    assert nearest("zzzzzz") is None
