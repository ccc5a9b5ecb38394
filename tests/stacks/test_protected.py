"""What cannot be made again is deleted by nobody who did not say so on purpose."""

from __future__ import annotations

import re
from typing import Any

import pulumi
import pytest

from gpuclusters.config.stack import read_stack_file
from tests.adopt.conftest import project, warm
from tests.engine.shellkit import Shell, shell
from tests.stacks.declaring import PROJECT, declared

__all__ = ["project", "shell", "warm"]

PROGRAM = """
import pulumi
from components.kubernetes_objects import kept
from gpuclusters.rke2.resource import Rke2Tokens

Rke2Tokens("prod-tokens", cluster="prod", opts=kept(pulumi.ResourceOptions(), protect={protect}))
"""


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


def test_a_destroy_names_what_is_protected_and_goes_through_once_it_is_not(project: Shell) -> None:
    program = project.folder / "__main__.py"
    program.write_text(PROGRAM.format(protect=True))
    project.ok("up", "--yes", "--skip-preview")
    refused = project("destroy", "--yes", "--skip-preview")
    assert refused.code != 0
    assert "prod-tokens" in refused.out + refused.err
    assert "protect" in refused.out + refused.err
    program.write_text(PROGRAM.format(protect=False))
    project.ok("up", "--yes", "--skip-preview")
    project.ok("destroy", "--yes", "--skip-preview")
