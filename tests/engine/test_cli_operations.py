"""`preview`, `up`, `refresh`, `destroy`: what reaches the engine, and how commands end."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from engine.cli.main import DEBUG_VARIABLE
from engine.events import Diagnostic, Prelude
from engine.request import ConfigValue, Outcome
from engine.usererror import UserError
from tests.engine.shellkit import Recorder, Shell, dev, engine, shell

__all__ = ["dev", "engine", "shell"]


def test_the_flags_reach_the_engine(dev: Shell, engine: Recorder) -> None:
    dev.ok(
        "up", "--yes", "--skip-preview", "--parallel", "3", "--refresh=true", "--diff=false",
        "--target", "urn:a", "-t", "urn:b", "--target-dependents", "--replace", "urn:c",
        "--continue-on-error", "--message", "why", "--target-replace", "urn:d",
    )  # fmt: skip
    (request,) = engine.requests
    assert (request.operation, request.preview, request.stack) == ("up", False, "dev")
    assert (request.parallel, request.refresh, request.continue_on_error) == (3, True, True)
    assert request.targets == ("urn:a", "urn:b", "urn:d")
    assert request.replace == ("urn:c", "urn:d")
    assert request.target_dependents
    assert request.project.name == "refs"
    assert request.project.folder == dev.folder


def test_configuration_reaches_the_engine_decrypted_and_with_defaults(
    dev: Shell, engine: Recorder
) -> None:
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("config", "set", "--secret", "object", "tok-456")
    dev.ok("config", "set", "aws:region", "here")
    # As people write it who edit the file.
    text = dev.stack_file.read_text()
    dev.stack_file.write_text(text.replace("object:\n", "object:\n    a: 1\n    b:\n  "))
    dev.ok("preview")
    assert engine.requests[0].config == {
        "refs:greeting": ConfigValue("hello"),
        "refs:token": ConfigValue("tok-123", secret=True),
        "refs:object": ConfigValue('{"a":1,"b":"tok-456"}', secret=True),
        "aws:region": ConfigValue("here"),
    }
    assert "aws:region: here" in dev.stack_file.read_text()


def test_no_output_shows_a_secret(dev: Shell, engine: Recorder) -> None:
    def leaky(request, store, emit, cancel) -> Outcome:
        emit(Prelude({"refs:token": "tok-123"}))
        emit(Diagnostic("info", 'printed tok-123 and {"x": "line\\nline"}\n'))
        emit(Diagnostic("error", "failed with tok-123\n", "", "error: "))
        return Outcome(ok=False, changes={})

    engine.does = leaky
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("config", "set", "--secret", "lines", "line\nline")
    for flags in ((), ("--json",), ("--diff",)):
        for verb in (("preview",), ("up", "--yes", "--skip-preview")):
            done = dev(*verb, *flags)
            assert done.code == 1
            assert "tok-123" not in done.out + done.err
            assert "line\\nline" not in done.out + done.err


def test_a_failed_preview_ends_it(dev: Shell, engine: Recorder) -> None:
    engine.outcome = Outcome(ok=False, changes={})
    assert dev("up", "--yes").code == 1
    assert [request.preview for request in engine.requests] == [True]
    assert dev.files("history/**/*.json") == []


def test_a_run_is_alone_with_its_stack_and_lets_go_of_it_whatever_happens(
    dev: Shell, engine: Recorder
) -> None:
    locks = "locks/**/*.json"

    def looking(request, store, emit, cancel) -> Outcome:
        assert len(dev.files(locks)) == (not request.preview)
        return Outcome(ok=True, changes={})

    engine.does = looking
    dev.ok("preview")
    dev.ok("destroy", "--preview-only")

    def failing(request, store, emit, cancel) -> Outcome:
        looking(request, store, emit, cancel)
        second = dev("up", "--yes", "--skip-preview", "--json")
        assert (second.code, second.out) == (1, "")
        assert second.err.startswith("error: the stack is currently locked by 1 lock(s).")
        raise UserError("the provider does not answer", 4)

    engine.does = failing
    done = dev("up", "--yes", "--skip-preview")
    assert (done.code, done.err.splitlines()[-1]) == (4, "error: the provider does not answer")
    assert dev.files(locks) == []


def test_a_run_is_noted_in_the_history(dev: Shell, engine: Recorder) -> None:
    engine.outcome = Outcome(ok=True, changes={"create": 2})
    dev.ok("config", "set", "--secret", "token", "tok-123")
    dev.ok("up", "--yes", "-m", "first")
    engine.outcome = Outcome(ok=False, changes={})
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


def test_an_internal_fault_is_one_sentence(
    dev: Shell, engine: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Outcome:
        raise ZeroDivisionError("by zero")

    engine.does = broken
    done = dev("preview")
    assert done.code == 255
    assert "ZeroDivisionError: by zero" in done.err
    assert DEBUG_VARIABLE in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    with pytest.raises(ZeroDivisionError):
        dev("preview")


@pytest.mark.parametrize("answers", [["details", "yes"], ["no"], [""], ["maybe"]])
def test_at_a_terminal_somebody_is_asked_may_look_at_details_and_only_yes_is_yes(
    dev: Shell, engine: Recorder, monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    engine.outcome = Outcome(ok=True, changes={"create": 1})
    said = iter(answers)
    monkeypatch.setattr("engine.cli.operations.interactive", lambda _: True)
    monkeypatch.setattr("builtins.input", lambda question: print(question) or next(said))
    done = dev("up")
    assert done.out.count("Do you want to perform this update? (yes/no/details)") == len(answers)
    assert done.out.count("Previewing update (dev):") == len(answers)
    agreed = answers[-1] == "yes"
    assert [request.preview for request in engine.requests] == [True, False][: 1 + agreed]
    assert ("confirmation declined" in done.err) is not agreed
    assert done.code == (0 if agreed else 1)
    assert dev.files("locks/**/*.json") == []


def test_a_broken_display_does_not_stop_the_run(
    dev: Shell, engine: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ZeroDivisionError("in the display")

    engine.outcome = Outcome(ok=True, changes={"create": 1})
    monkeypatch.setattr("engine.display.eventlines.EventLines.show", failing)
    done = dev("up", "--yes", "--skip-preview", "--json")
    assert done.code == 255
    assert "in the display" in done.err
    assert "refs-dev" in dev.checkpoint.read_text()  # the run came to its end


def test_a_run_goes_on_when_nobody_reads_its_output(dev: Shell) -> None:
    script = textwrap.dedent(
        """
        import sys
        from engine import deployment
        from engine.cli.main import main
        from engine.events import Diagnostic
        from engine.request import Outcome
        def run(request, store, emit, cancel):
            sys.stdin.readline()
            for number in range(3000):
                emit(Diagnostic("info", "x" * 100))
            open("finished", "w").close()
            return Outcome(ok=True, changes={})
        deployment.run = run
        sys.exit(main(["preview"]))
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=dev.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    head = process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate("go\n", timeout=120)
    assert process.returncode == 0, errors
    assert head == "Previewing update (dev):\n"
    assert (dev.folder / "finished").exists()
    assert "Traceback" not in errors
