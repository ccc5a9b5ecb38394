"""Programs and providers that make no sense: one clear message, the state as valid as before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.goal import GoalError, from_request
from engine.protocol import resource_pb2
from tests.engine.processkit import COLD, Engine
from tests.engine.warmkit import Warm

THINGS = """\
import pulumi
from things import Thing
class Odd(pulumi.CustomResource):
    answer: pulumi.Output[str]
    def __init__(self, name, answer, opts=None):
        super().__init__("odd:index:Odd", name, {"answer": answer}, opts)
"""
HEAD = """\
import os, pathlib, pulumi
from odd import Odd
from things import Thing
Options = pulumi.ResourceOptions
"""
GOOD = "Odd('good', 'good')\n"
GUARDED = "Thing('guarded', {what!r}, Options(protect=True, replace_on_changes=['what']))\n"
FAILING_APPLY = """\
pathlib.Path(os.environ["WORLD"], "program").write_text(str(os.getpid()))
slow = [Odd(f"slow-{i}", "when the program has ended") for i in range(3)]
def fail(_):
    raise ValueError("this apply fails")
pulumi.Output.from_input("x").apply(fail)
Thing("after", pulumi.Output.all(*[s.id for s in slow]).apply(str))
"""
HOOK = """\
hook = pulumi.ResourceHook("h", lambda args: None)
binding = pulumi.ResourceHookBinding(before_create=[hook])
Thing("a", opts=Options(hooks=binding))
"""
CLI = "run this stack with the Pulumi CLI"
DEAD = "the provider for 'pulumi-python' ended"
ASSETS = "uses assets or archives, which the embedded engine does not support"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, warm: Warm) -> Iterator[Engine]:
    """A stack with two resources, which no program of this module may change."""
    made = Engine(tmp_path_factory.mktemp("bad"), [warm.engine])
    (made.folder / "odd.py").write_text(THINGS)
    made.program(HEAD + GOOD + GUARDED.format(what="work"))
    made.up()
    yield made
    made.end()


@pytest.fixture
def engine(filled: Engine) -> Iterator[Engine]:
    env = dict(filled.env)
    yield filled
    filled.env = env


# A provider's answers that make no sense, its differences, its death, and values that are not supported.
ANSWERS = {
    "Odd('bad', 'signature in check')": ["answered what cannot be understood"],
    "Odd('bad', 'no id')": ["the provider gave no ID for the new resource"],
    "Odd('bad', 'unknown')": ["answered with unknown values although there is an object: answer"],
    "Odd('bad', 'details')": ["it broke"],
    "Odd('good', 'state in diff')": ["a difference that cannot be understood: state 7"],
    "Odd('good', 'kind in diff')": ["a difference that cannot be understood"],
    "Odd('good', 'path in diff')": ["is no property path"],
    "Thing('bad', 'die')": [f"{DEAD} with exit code 3 during Create"],
    "Thing('bad', 'die slowly')": [f"{DEAD} with exit code 4 during Create"],
    "Odd('bad', pulumi.FileAsset('motd.txt'))": [ASSETS],
    "Odd('bad', pulumi.AssetArchive({}))": [ASSETS],
    "pulumi.export('it', pulumi.FileAsset('motd.txt'))": [ASSETS],
}
# Programs that end too soon or not well, functions that fail, and what no program of this project has.
PROGRAMS = {
    "os._exit(0)": ["ended before it registered anything"],
    GOOD + "import sys\nsys.exit(7)": ["program exited with non-zero exit code: 7"],
    "this is no Python": ["SyntaxError", "__main__.py"],
    "def declare():\n    return {}['missing']\n\n\ndeclare()": [
        "Program failed with an unhandled exception",
        "KeyError: 'missing'",
        "__main__.py",
    ],
    GUARDED.format(what="other"): ["unable to replace resource"],
    HOOK: ["does not support resource hooks"],
    "pulumi.CustomResource('nowhere:index:Thing', 'a', {}, Options(version='1.2.3'))": [
        "no provider for the package 'nowhere' 1.2.3",
        "pulumi plugin install resource nowhere 1.2.3",
    ],
    "pulumi.runtime.invoke('odd:index:fail', {})": ["this function always fails"],
    "pulumi.runtime.invoke('odd:index:refuse', {})": ["is not wanted"],
    "pulumi.runtime.register_resource_transform(lambda args: None)": ["transforms", CLI],
    "Odd('bad', 'good', Options(transforms=[lambda args: None]))": ["transforms", CLI],
    "Odd('bad', 'good', Options(import_='there'))": ["import_", CLI],
    "Odd('bad', 'good', Options(id='there'))": ["resources that are only read: 'bad'", CLI],
    "pulumi.StackReference('organization/proc/other')": ["StackReference", CLI],
}


@pytest.mark.parametrize("program", [*ANSWERS, *PROGRAMS])
def test_what_makes_no_sense_is_told_and_changes_nothing(engine: Engine, program: str) -> None:
    before = engine.resources()
    engine.program(f"{HEAD}{program}\n")
    output = engine.up(expect=1)
    for message in (ANSWERS | PROGRAMS)[program]:
        assert message in output
    assert "Traceback" not in output or program in PROGRAMS
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
    engine.program(HEAD + GOOD + GUARDED.format(what="other"))
    output = engine.run("preview", "--stack", "dev", expect=1)
    assert "unable to replace resource" in output
    assert "error: preview failed" in output


def test_a_python_that_is_not_there_is_named(engine: Engine) -> None:
    engine.program("import pulumi\n")
    command, engine.command = engine.command, COLD
    engine.env["PULUMI_PYTHON_CMD"] = "/no/such/python"
    output = engine.up(expect=1)
    engine.command = command
    assert "/no/such/python" in output
    assert "Traceback" not in output


def test_a_stack_without_a_program_is_refused(engine: Engine) -> None:
    (engine.folder / "__main__.py").unlink(missing_ok=True)
    output = engine.up(expect=1)
    assert "there is no program" in output
    assert "__main__.py does not exist" in output


def test_an_apply_that_fails_ends_the_program_though_others_still_wait(engine: Engine) -> None:
    engine.program(HEAD + GOOD + GUARDED.format(what="work") + FAILING_APPLY)
    output = engine.up(expect=1)
    assert "ValueError: this apply fails" in output
    assert "after" not in engine.names()


def test_a_hundred_slow_calls_are_limited_only_by_parallel(engine: Engine) -> None:
    engine.program(
        HEAD + "for i in range(100):\n    Odd(f'thing-{i}', 'slow')\n" + GUARDED.format(what="work")
    )
    engine.run("up", "--yes", "--skip-preview", "--stack", "dev", "--parallel", "100")
    assert len([n for n in engine.names() if n.startswith("thing-")]) == 100


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
