"""What cannot be made again is deleted by nobody who did not say so on purpose."""

from __future__ import annotations

import re
from typing import Any

import pulumi
import pytest

from gpuclusters.config.stack import read_stack_file
from tests.stacks.declaring import PROJECT, declared


@pytest.mark.parametrize(
    ("stack", "names"),
    [
        ("dev", None),
        ("hgx-h100", r"hgx-\d+-fabric"),
        ("rke2-a100", r"(rke2-\d+-rke2|rke2-a100-tokens)"),
        ("usernetes-v100", r"v100-1-(node|machine)"),
    ],
)
def test_stack_files_that_matter_protect_what_cannot_be_made_again(
    stack: str, names: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected: dict[str, bool] = {}
    declare = pulumi.CustomResource.__init__

    def note(
        self: Any, type_: str, name: str, props: Any = None, opts: Any = None, *more: Any
    ) -> None:
        protected[name] = bool(opts and opts.protect)
        declare(self, type_, name, props, opts, *more)

    monkeypatch.setattr(pulumi.CustomResource, "__init__", note)
    keys: Any = read_stack_file(PROJECT / f"Pulumi.{stack}.yaml")
    declared(keys, preview=True)
    wanted = {name for name in protected if names and re.fullmatch(names, name)}
    assert bool(wanted) is (names is not None)
    assert {name for name, kept in protected.items() if kept} == wanted
