"""`preview`, `up`, `refresh`, `destroy`: what reaches the engine, and how commands end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import deployment
from engine.cli.main import DEBUG_VARIABLE
from engine.events import Cancel, Diagnostic, Prelude, Summary
from engine.request import Cancellation, ConfigValue, Outcome, Request
from engine.state import ResourceState, Snapshot
from engine.usererror import UserError
from tests.engine.shellkit import Run, Shell, engine, shell

__all__ = ["engine", "shell"]

ROOT = "urn:pulumi:dev::refs::pulumi:pulumi:Stack::refs-dev"
Use = Callable[[Run], None]


@pytest.fixture
def dev(shell: Shell) -> Shell:
    shell.ok("stack", "init", "dev")
    return shell


class Recorder:
    """An engine that notes what it is asked and ends as it is told."""

    def __init__(self, **changes: int) -> None:
        self.requests: list[Request] = []
        self.outcome = Outcome(ok=True, changes=changes)

    def __call__(self, request, store, emit, cancel) -> Outcome:
        self.requests.append(request)
        emit(Prelude({}))
        if not request.preview:
            store.save(Snapshot((ResourceState(ROOT, "pulumi:pulumi:Stack", custom=False),)))
        emit(Summary(self.outcome.changes, "succeeded", 1, is_preview=request.preview))
        emit(Cancel())
        return self.outcome


def test_the_flags_reach_the_engine(dev: Shell, engine: Use) -> None:
    recorder = Recorder()
    engine(recorder)
    dev.ok(
        "up", "--yes", "--skip-preview", "--parallel", "3", "--refresh=true", "--diff=false",
        "--target", "urn:a", "-t", "urn:b", "--target-dependents", "--replace", "urn:c",
        "--continue-on-error", "--message", "why", "--target-replace", "urn:d",
    )  # fmt: skip
    (request,) = recorder.requests
    assert (request.operation, request.preview, request.stack) == ("up", False, "dev")
    assert (request.parallel, request.refresh, request.continue_on_error) == (3, True, True)
    assert request.targets == ("urn:a", "urn:b", "urn:d")
    assert request.replace == ("urn:c", "urn:d")
    assert request.target_dependents
    assert request.project.name == "refs"
    assert request.project.folder == dev.folder


def test_configuration_reaches_the_engine_decrypted_and_with_defaults(
    dev: Shell, engine: Use
) -> None:
    recorder = Recorder()
    engine(recorder)
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("config", "set", "--secret", "object", "tok-456")
    dev.ok("config", "set", "aws:region", "here")
    # As people write it who edit the file.
    text = dev.stack_file.read_text()
    dev.stack_file.write_text(text.replace("object:\n", "object:\n    a: 1\n    b:\n  "))
    dev.ok("preview")
    assert recorder.requests[0].config == {
        "refs:greeting": ConfigValue("hello"),
        "refs:token": ConfigValue("tok-123", secret=True),
        "refs:object": ConfigValue('{"a":1,"b":"tok-456"}', secret=True),
        "aws:region": ConfigValue("here"),
    }
    assert "aws:region: here" in dev.stack_file.read_text()


def test_no_output_shows_a_secret(dev: Shell, engine: Use) -> None:
    def leaky(request, store, emit, cancel) -> Outcome:
        emit(Prelude({"refs:token": "tok-123"}))
        emit(Diagnostic("info", 'printed tok-123 and {"x": "line\\nline"}\n'))
        emit(Diagnostic("error", "failed with tok-123\n", "", "error: "))
        return Outcome(ok=False, changes={})

    engine(leaky)
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("config", "set", "--secret", "lines", "line\nline")
    for flags in ((), ("--json",), ("--diff",)):
        for verb in (("preview",), ("up", "--yes", "--skip-preview")):
            done = dev(*verb, *flags)
            assert done.code == 1
            assert "tok-123" not in done.out + done.err
            assert "line\\nline" not in done.out + done.err


def test_a_failed_preview_ends_it(dev: Shell, engine: Use) -> None:
    recorder = Recorder()
    recorder.outcome = Outcome(ok=False, changes={})
    engine(recorder)
    assert dev("up", "--yes").code == 1
    assert [request.preview for request in recorder.requests] == [True]
    assert dev.files("history/**/*.json") == []


@pytest.mark.parametrize("verb", ["up", "destroy", "refresh"])
def test_without_a_terminal_consent_has_to_be_given(dev: Shell, engine: Use, verb: str) -> None:
    engine(lambda *_: pytest.fail("the engine ran"))
    done = dev(verb)
    assert done.code == 2
    looking = "" if verb == "up" else " or --preview-only"
    assert f"--yes or --skip-preview{looking} must be passed" in done.err


def test_a_run_is_alone_with_its_stack_and_lets_go_of_it_whatever_happens(
    dev: Shell, engine: Use
) -> None:
    locks = "locks/**/*.json"

    def looking(request, store, emit, cancel) -> Outcome:
        assert len(dev.files(locks)) == (not request.preview)
        return Outcome(ok=True, changes={})

    engine(looking)
    dev.ok("preview")
    dev.ok("destroy", "--preview-only")

    def failing(request, store, emit, cancel) -> Outcome:
        looking(request, store, emit, cancel)
        second = dev("up", "--yes", "--skip-preview", "--json")
        assert (second.code, second.out) == (1, "")
        assert second.err.startswith("error: the stack is currently locked by 1 lock(s).")
        raise UserError("the provider does not answer", 4)

    engine(failing)
    done = dev("up", "--yes", "--skip-preview")
    assert (done.code, done.err.splitlines()[-1]) == (4, "error: the provider does not answer")
    assert dev.files(locks) == []


def test_a_run_is_noted_in_the_history(dev: Shell, engine: Use) -> None:
    recorder = Recorder(create=2)
    engine(recorder)
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("up", "--yes", "-m", "first")
    recorder.outcome = Outcome(ok=False, changes={})
    dev("destroy", "--yes", "--skip-preview")
    records = dev.ok("stack", "history", "--json").json
    assert isinstance(records, list)
    assert [(r["kind"], r["result"], r["message"]) for r in records] == [
        ("destroy", "failed", ""), ("update", "succeeded", "first"),
    ]  # fmt: skip
    assert dev.ok("stack", "history", "--json", "--page-size", "1").json == records[:1]
    assert records[1]["resourceChanges"] == {"create": 2}
    assert records[1]["config"]["refs:token"] == {"secret": True}
    assert len(dev.files("history/refs/dev/*.checkpoint.json")) == 2
    assert len(dev.files("backups/refs/dev/*.json")) == 2
    assert not any("tok-123" in p.read_text() for p in dev.state.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"same": 3}, 0), ({"same": 1, "update": 1}, 7), ({"create": 0}, 0)],
)
@pytest.mark.parametrize("verb", [("preview",), ("up", "--yes", "--skip-preview")])
def test_unexpected_changes_exit_with_7(
    dev: Shell, engine: Use, verb: tuple[str, ...], changes: dict[str, int], code: int
) -> None:
    engine(Recorder(**changes))
    assert dev(*verb, "--expect-no-changes").code == code
    assert dev(*verb).code == 0


def test_the_first_interrupt_asks_and_the_second_insists(dev: Shell, engine: Use) -> None:
    asked = []

    def waiting(request, store, emit, cancel: Cancellation) -> Outcome:
        done = threading.Event()
        cancel.listen(lambda: asked.append(cancel.terminated.is_set()) or done.set())
        for _ in range(2):
            done.clear()
            os.kill(os.getpid(), signal.SIGINT)
            assert done.wait(120)
        return Outcome(ok=False, changes={}, cancelled=True)

    engine(waiting)
    before = signal.getsignal(signal.SIGINT)
    done = dev("up", "--yes", "--skip-preview")
    assert asked == [False, True]
    assert done.code == 8
    assert "press ^C again" in done.err
    assert "at once" in done.err
    assert signal.getsignal(signal.SIGINT) is before


def test_an_internal_fault_is_one_sentence(
    dev: Shell, engine: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Outcome:
        raise ZeroDivisionError("by zero")

    engine(broken)
    done = dev("preview")
    assert done.code == 255
    assert "ZeroDivisionError: by zero" in done.err
    assert DEBUG_VARIABLE in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(ZeroDivisionError):
        dev("preview")


def test_missing_configuration_is_found_first_unless_all_is_to_go(dev: Shell, engine: Use) -> None:
    engine(lambda *_: pytest.fail("the engine ran"))
    (dev.folder / "Pulumi.yaml").write_text(
        "name: refs\nruntime: python\nconfig: {size: {type: integer}, name: {type: string}}\n"
    )
    done = dev("preview")
    assert done.code == 1
    assert "missing configuration values 'name' and 'size'" in done.err
    engine(Recorder())
    dev.ok("destroy", "--yes", "--skip-preview")


def test_destroy_can_remove_the_stack(dev: Shell, engine: Use) -> None:
    engine(Recorder(delete=1))
    dev.ok("destroy", "--yes", "--remove")
    assert not dev.checkpoint.exists()
    assert not dev.stack_file.exists()


def test_outside_of_a_project_that_is_said(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("empty"))
    assert "no Pulumi.yaml project file found" in shell("preview").err
    assert shell.ok("-C", str(shell.folder), "stack", "init", "dev").code == 0


def test_at_a_terminal_somebody_is_asked_and_may_look_at_details(
    dev: Shell, engine: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(create=1)
    engine(recorder)
    answers = iter(["details", "yes"])
    monkeypatch.setattr("engine.cli.operations.interactive", lambda _: True)
    monkeypatch.setattr("builtins.input", lambda question: print(question) or next(answers))
    done = dev("up")
    assert done.code == 0
    assert done.out.count("Do you want to perform this update? (yes/no/details)") == 2
    assert done.out.count("Previewing update (dev):") == 2
    assert [request.preview for request in recorder.requests] == [True, False]


@pytest.mark.parametrize("answer", ["no", "", "maybe"])
def test_anything_but_yes_is_no(
    dev: Shell, engine: Use, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    recorder = Recorder(create=1)
    engine(recorder)
    monkeypatch.setattr("engine.cli.operations.interactive", lambda _: True)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    done = dev("destroy")
    assert done.code == 1
    assert "confirmation declined" in done.err
    assert [request.preview for request in recorder.requests] == [True]
    assert dev.files("locks/**/*.json") == []


def test_a_broken_display_does_not_stop_the_run(
    dev: Shell, engine: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("in the display")

    recorder = Recorder(create=1)
    engine(recorder)
    monkeypatch.setattr("engine.display.eventlines.EventLines.show", failing)
    done = dev("up", "--yes", "--skip-preview", "--json")
    assert done.code == 255
    assert "in the display" in done.err
    assert "refs-dev" in dev.checkpoint.read_text()  # the run came to its end


def test_a_run_goes_on_when_nobody_reads_its_output(dev: Shell) -> None:
    script = (
        "import sys\n"
        "from engine import deployment\n"
        "from engine.events import Diagnostic\n"
        "from engine.request import Outcome\n"
        "def run(request, store, emit, cancel):\n"
        "    sys.stdin.readline()\n"
        "    for number in range(3000):\n"
        "        emit(Diagnostic('info', 'x' * 100))\n"
        "    open('finished', 'w').close()\n"
        "    return Outcome(ok=True, changes={})\n"
        "deployment.run = run\n"
        "from engine.cli.main import main\n"
        "sys.exit(main(['preview']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(deployment.__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=dev.folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    head = process.stdout.readline()
    process.stdout.close()
    process.stdin.write("go\n")
    process.stdin.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(120) == 0, errors
    assert head == "Previewing update (dev):\n"
    assert (dev.folder / "finished").exists()
    assert "Traceback" not in errors
