"""What the on-host tool says, read with mistrust."""

from __future__ import annotations

from caas.controllers.host_effects import Done, judged
from gpuclusters.lease.board import ClearMemory, Failed, ReadKnobs, Refused, Succeeded

LOG = "2026-11-21,20:00:00.123 INFO     "
CLEAR = ClearMemory(1, 1)


def test_exit_code_zero_counts_for_nothing_beside_an_error_line() -> None:
    done = Done(0, "", "2026-11-21,20:00:00.123 ERROR    Cannot reset the GPU with SBR as ...\n")
    assert judged(CLEAR, done) == Refused(CLEAR, "Cannot reset the GPU with SBR as ...")


def test_success_is_exit_code_zero_and_no_error_line() -> None:
    done = Done(0, "", f"{LOG}Selected GPU 0000:0f:00.0 H100\n")
    assert judged(CLEAR, done) == Succeeded(CLEAR)


def test_what_the_tool_says_of_a_gpu_when_it_breaks_off_is_a_verdict() -> None:
    traceback = (
        "Traceback (most recent call last):\n"
        "gpu.error.GpuPollTimeout: GPU 0000:b8:00.0 Timed out polling memory_clear_finished\n"
    )
    said = judged(CLEAR, Done(1, "", traceback))
    assert isinstance(said, Refused)
    assert "memory_clear_finished" in said.message


def test_a_tool_that_did_not_run_gives_no_verdict() -> None:
    missing = Done(127, "", "sudo: nvidia_gpu_tools.py: command not found\n")
    locked = Done(1, "", "")  # another one holds the lock
    for done in (missing, locked):
        assert isinstance(judged(CLEAR, done), Failed)


def test_knobs_are_what_the_log_states() -> None:
    said = "".join(
        f"{LOG}GPU 0000:0f:00.0 H100 {line}\n"
        for line in ("ECC is enabled", "MIG mode is disabled", "CC mode is off")
    )
    read = ReadKnobs(1, 1)
    knobs = {"ecc": "enabled", "mig": "disabled", "cc": "off"}
    assert judged(read, Done(0, "", said)) == Succeeded(read, knobs)
