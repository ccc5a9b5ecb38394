"""Recorded mutants fit the code; that tests notice them is `make mutants`."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT, Mutant, place_of, recorded


@pytest.mark.parametrize("mutant", recorded(), ids=lambda mutant: mutant.breaks)
def test_a_mutant_breaks_one_place_and_names_tests_that_there_are(mutant: Mutant) -> None:
    assert place_of(mutant, ROOT)
    assert mutant.find != mutant.put
    assert all((ROOT / test.partition("::")[0]).exists() for test in mutant.tests)
