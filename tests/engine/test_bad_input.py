"""Programs and providers that make no sense: one clear message, the state as valid as before."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.goal import GoalError, from_request
from engine.protocol import resource_pb2
from tests.engine.processkit import Engine
from tests.engine.warmkit import Warm

ODDITY = Path(__file__).parent / "oddity"

THINGS = """\
import pulumi
class Odd(pulumi.CustomResource):
    answer: pulumi.Output[str]
    def __init__(self, name, answer, opts=None):
        super().__init__("odd:index:Odd", name, {"answer": answer}, opts)
"""


@pytest.fixture
def engine(tmp_path: Path, warm: Warm) -> Iterator[Engine]:
    made = Engine(tmp_path, [warm.engine])
    (made.folder / "odd.py").write_text(THINGS)
    # The plugin needs the SDK: its `python3` is that of the tests.
    python = Path(sys.executable).parent
    made.env["PATH"] = os.pathsep.join([str(ODDITY), str(python), made.env["PATH"]])
    yield made
    made.end()


def declare(engine: Engine, *answers: str) -> None:
    lines = [f"Odd('thing-{i}', {answer!r})" for i, answer in enumerate(answers)]
    engine.program("\n".join(["from odd import Odd", *lines, ""]))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("signature in check", "answered what cannot be understood"),
        ("no id", "the provider gave no ID for the new resource"),
        ("unknown", "answered with unknown values although there is an object: answer"),
        ("details", "it broke"),
    ],
)
def test_an_answer_that_makes_no_sense_is_told_and_not_stored(
    engine: Engine, answer: str, message: str
) -> None:
    declare(engine, answer)
    output = engine.up(expect=1)
    assert message in output
    assert "Traceback" not in output
    assert "internal fault" not in output
    assert "thing-0" not in engine.names()
    declare(engine, "good")
    engine.up()
    assert "thing-0" in engine.names()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("state in diff", "a difference that cannot be understood: state 7"),
        ("kind in diff", "a difference that cannot be understood"),
        ("path in diff", "is no property path"),
    ],
)
def test_a_difference_that_makes_no_sense_changes_nothing(
    engine: Engine, answer: str, message: str
) -> None:
    declare(engine, "good")
    engine.up()
    before = engine.state()["resources"]
    declare(engine, answer)
    output = engine.up(expect=1)
    assert message in output
    assert "internal fault" not in output
    assert engine.state()["resources"] == before


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
    declare(engine, "good")
    engine.env["ODD"] = mode
    output = engine.up(expect=1)
    assert "the provider for 'odd'" in output
    assert message in output


def test_a_hundred_slow_calls_are_limited_only_by_parallel(engine: Engine) -> None:
    declare(engine, *["slow"] * 100)
    engine.run("up", "--yes", "--skip-preview", "--stack", "dev", "--parallel", "100")
    assert len([n for n in engine.names() if n.startswith("thing-")]) == 100


def test_an_apply_that_fails_ends_the_program_though_others_still_wait(engine: Engine) -> None:
    engine.program(
        "import os, pathlib, pulumi\nfrom odd import Odd\nfrom things import Thing\n"
        "pathlib.Path(os.environ['WORLD'], 'program').write_text(str(os.getpid()))\n"
        "slow = [Odd(f'slow-{i}', 'when the program has ended') for i in range(3)]\n"
        "def fail(_):\n    raise ValueError('this apply fails')\n"
        "pulumi.Output.from_input('x').apply(fail)\n"
        "Thing('after', pulumi.Output.all(*[s.id for s in slow]).apply(str))\n"
    )
    output = engine.up(expect=1)
    assert "ValueError: this apply fails" in output
    assert "after" not in engine.names()


def test_a_program_that_ends_with_a_code_of_its_own_deletes_nothing(engine: Engine) -> None:
    declare(engine, "good", "good")
    engine.up()
    engine.program("from odd import Odd\nOdd('thing-0', 'good')\nimport sys\nsys.exit(7)\n")
    output = engine.up(expect=1)
    assert "program exited with non-zero exit code: 7" in output
    assert {"thing-0", "thing-1"} <= set(engine.names())


def test_a_program_with_a_syntax_error_says_where(engine: Engine) -> None:
    engine.program("import pulumi\nthis is no Python\n")
    output = engine.up(expect=1)
    assert "SyntaxError" in output
    assert "__main__.py" in output


@pytest.mark.parametrize("value", ["FileAsset('motd.txt')", "AssetArchive({})"])
@pytest.mark.parametrize("program", ["Odd('a', {})", "pulumi.export('it', {})"])
def test_assets_are_refused_by_name(engine: Engine, program: str, value: str) -> None:
    made = program.format(f"pulumi.{value}")
    engine.program(f"import pulumi\nfrom odd import Odd\n{made}\n")
    output = engine.up(expect=1)
    assert "uses assets or archives, which the embedded engine does not support" in output
    assert "Traceback" not in output
    assert "a" not in engine.names()


def registration(**fields: object) -> resource_pb2.RegisterResourceRequest:
    return resource_pb2.RegisterResourceRequest(type="a:b:C", name="it", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"remote": True}, "remote components"),
        ({"packageRef": "x"}, "parameterized packages"),
        ({"replace_with": ["urn"]}, "replace_with"),
        ({"envVarMappings": {"A": "B"}}, "environment variable mappings"),
        ({"importId": "x"}, "import_"),
        ({"transforms": [{"token": "x"}]}, "transforms"),
        ({"hooks": {"before_create": ["x"]}}, "resource hooks"),
    ],
)
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
