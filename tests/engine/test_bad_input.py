"""Programs and providers that make no sense: one clear message, the state as valid as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.goal import GoalError, from_request
from engine.protocol import resource_pb2
from tests.engine.processkit import PROGRAMS, Engine
from tests.fixtures.tables import beside

ROWS = beside(__file__, "rows.yaml")
GOOD = PROGRAMS["good"]
HEAD = GOOD.partition("Odd(")[0]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, warm: Path) -> Iterator[Engine]:
    """A stack with two resources, which no program of this module may change."""
    made = Engine(tmp_path_factory.mktemp("bad"), warm)
    made.program(GOOD)
    made.up()
    yield made
    made.end()


@pytest.fixture
def engine(filled: Engine) -> Iterator[Engine]:
    env = dict(filled.env)
    yield filled
    filled.env = env


@pytest.mark.parametrize(
    "row", [*PROGRAMS["bad answers"], *PROGRAMS["bad programs"]], ids=lambda row: row[0]
)
def test_what_makes_no_sense_is_told_and_changes_nothing(engine: Engine, row: list[str]) -> None:
    program, *said = row
    before = engine.resources()
    engine.program(f"{HEAD}{program}\n")
    output = engine.up(expect=1)
    for message in said:
        assert message in output
    assert "Traceback" not in output or row in PROGRAMS["bad programs"]
    assert "internal fault" not in output
    if "declare()" in program:
        # Of an exception, the program's own lines are shown.
        assert "program_runner" not in output
        assert "asyncio" not in output
    assert engine.resources() == before


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("port", "said 'this is no port' where its port was expected"),
        ("silent", "cannot start here"),
    ],
)
def test_a_provider_that_does_not_serve_is_named_with_what_it_said(
    engine: Engine, mode: str, message: str
) -> None:
    engine.program(HEAD + "Odd('bad', 'good')\n")
    engine.env["ODD"] = mode
    output = engine.up(expect=1)
    assert "the provider for 'odd'" in output
    assert message in output


def test_a_plan_that_meets_a_protected_resource_is_told_as_failed(engine: Engine) -> None:
    engine.program(GOOD.replace("work", "other"))
    output = engine.run("preview", "--stack", "dev", expect=1)
    assert "unable to replace resource" in output
    assert "error: preview failed" in output


def test_a_python_that_is_not_there_is_named(engine: Engine) -> None:
    engine.program("import pulumi\n")
    engine.env["PULUMI_PYTHON_CMD"] = "/no/such/python"
    output = engine.up(expect=1)
    assert "/no/such/python" in output
    assert "Traceback" not in output


def test_a_stack_without_a_program_is_refused(engine: Engine) -> None:
    (engine.folder / "__main__.py").unlink(missing_ok=True)
    output = engine.up(expect=1)
    assert "there is no program" in output
    assert "__main__.py does not exist" in output


def test_an_apply_that_fails_ends_the_program_though_others_still_wait(engine: Engine) -> None:
    engine.program(GOOD + PROGRAMS["failing apply"])
    output = engine.up(expect=1)
    assert "ValueError: this apply fails" in output
    assert "after" not in engine.names()


def test_a_hundred_slow_calls_are_limited_only_by_parallel(engine: Engine) -> None:
    engine.program(GOOD + "for i in range(100):\n    Odd(f'thing-{i}', 'slow')\n")
    engine.run("up", "--yes", "--skip-preview", "--stack", "dev", "--parallel", "100")
    assert len([n for n in engine.names() if n.startswith("thing-")]) == 100


def registration(**fields: object) -> resource_pb2.RegisterResourceRequest:
    return resource_pb2.RegisterResourceRequest(type="a:b:C", name="it", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("fields", "what"), ROWS["options"])
def test_an_option_that_is_not_supported_is_refused_by_name(
    fields: dict[str, object], what: str
) -> None:
    with pytest.raises(GoalError, match=f"uses {what}, which the embedded engine does not support"):
        from_request(registration(**fields), Path("/"))


def test_an_option_of_a_newer_sdk_is_refused_not_ignored() -> None:
    request = registration()
    # Field 4242, a string, as a later release might have it.
    request.MergeFromString(b"\x92\x89\x02\x03abc")
    with pytest.raises(GoalError, match=r"newer Pulumi SDK, .*\(field 4242 of Reg"):
        from_request(request, Path("/"))
