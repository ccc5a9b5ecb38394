"""`inject` refuses by name where nothing can be shown; `tests/rootless` tries it with the real runtime."""

from __future__ import annotations

import json

import pytest

from gpuclusters.cdi import injection
from gpuclusters.cdi.injection import Injected
from gpuclusters.cli import inject
from gpuclusters.cli.errors import CommandError

HOOK = {"path": "/usr/bin/own", "args": ["own", "prestart"]}


@pytest.mark.parametrize(
    ("printed", "code"), [("", "cdi.no-toolkit"), ("runtime 1.20.1", "cdi.no-gpu")]
)
def test_a_machine_without_runtime_or_gpu_is_refused(
    printed: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inject, "on_this_computer", lambda _: Injected.parse(printed))
    with pytest.raises(CommandError, match="this computer") as refused:
        inject.command()
    assert refused.value.error_id == code


def test_a_machine_of_caas_has_no_driver_and_is_not_asked() -> None:
    with pytest.raises(CommandError, match="whose GPUs go to VMs") as refused:
        inject.on_host("hgx-h100", "hgx-01", [])
    assert refused.value.error_id == "cdi.no-gpu"


def test_what_was_there_before_is_not_added_and_a_mode_that_failed_adds_nothing() -> None:
    before = injection.container("all", "utility")
    after = json.dumps({**before, "hooks": {"prestart": [HOOK]}})
    printed = f"status a 0\nconfig a {after}\nstatus b 1\nconfig b {after}\nsaid b no such device\n"
    found = Injected.parse(f"runtime 1\ngpu V100\ngpu V100\n{printed}")
    added = found.added(before)
    assert added == {"a": [("hook", "prestart: own prestart")]}
    assert list(inject.lines(found, added)) == [
        "nvidia-container-runtime 1, 2 × V100",
        "a       b       ",
        "+       -       hook         prestart: own prestart",
        "b failed: no such device",
    ]
