"""Every row of every table says from which release of which source it is."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpuclusters.compat import dated_table
from gpuclusters.compat.dated_table import SOURCE, SOURCES, Source
from gpuclusters.core import codes

TABLES = sorted(
    str(path.relative_to(dated_table.FOLDER).with_suffix(""))
    for path in dated_table.FOLDER.rglob("*.yaml")
)
READ = {"at": "a document", "release": "1.0", "date": "2026-01-01"}


def unsourced(table: Mapping[str, Any]) -> Iterator[str]:
    """Every row without a source, every source that is named and not listed, or listed and not named."""
    listed = set(table.get(SOURCES) or ())
    named: set[str] = set()

    def walk(below: Mapping[str, Any], path: str, inherited: bool) -> Iterator[str]:
        stated = below.get(SOURCE)
        if stated is not None:
            ids = [stated] if isinstance(stated, str) else list(stated)
            named.update(ids)
            yield from (
                f"{path or 'table'}: source {one} is not listed" for one in ids if one not in listed
            )
        has = inherited or bool(stated)
        for key, value in below.items():
            if key in (SOURCE, SOURCES):
                continue
            here = f"{path}.{key}" if path else str(key)
            if isinstance(value, Mapping) and value:
                yield from walk(value, here, has)
            elif not has:
                yield f"{here}: no source"

    yield from walk(table, "", inherited=False)
    yield from (f"sources.{one}: no row names it" for one in sorted(listed - named))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_a_table_has_a_source(name: str) -> None:
    table = dated_table.written(name)
    assert list(unsourced(table)) == []
    for one in table["sources"].values():
        assert 2024 < Source.model_validate(one).date.year < 2027


def test_rows_in_the_code_that_have_a_source_each_name_it() -> None:
    found = {c: one for c, one in codes.listed().items() if c.startswith("preflight.")}
    of_ours = {"preflight.not-read", "preflight.machine-unfit", "preflight.fleet-unfit"}
    assert {c for c, one in found.items() if not one.source} == of_ours


def test_rows_are_read_without_their_sources() -> None:
    table = {"sources": {"a": READ}, "source": "a", "rows": {"source": "a", "x": {"y": 1}}}
    assert dated_table.bare(table) == {"rows": {"x": {"y": 1}}}
