"""What the on-host tool says, read with mistrust."""

from __future__ import annotations

from caas.controllers import gpu_tools
from caas.controllers.hosts import Done

LOG = "2026-11-21,20:00:00.123 INFO     "


def test_exit_code_zero_counts_for_nothing_beside_an_error_line() -> None:
    done = Done(0, "", "2026-11-21,20:00:00.123 ERROR    Cannot reset the GPU with SBR as ...\n")
    assert gpu_tools.complaint(done) == "Cannot reset the GPU with SBR as ..."
    assert gpu_tools.verdict(done)


def test_success_is_exit_code_zero_and_no_error_line() -> None:
    assert gpu_tools.complaint(Done(0, "", f"{LOG}Selected GPU 0000:0f:00.0 H100\n")) is None


def test_what_the_tool_says_of_a_gpu_when_it_breaks_off_is_a_verdict() -> None:
    traceback = (
        "Traceback (most recent call last):\n"
        "gpu.error.GpuPollTimeout: GPU 0000:b8:00.0 Timed out polling memory_clear_finished\n"
    )
    done = Done(1, "", traceback)
    assert gpu_tools.verdict(done)
    assert "memory_clear_finished" in str(gpu_tools.complaint(done))


def test_a_tool_that_did_not_run_gives_no_verdict() -> None:
    done = Done(127, "", "sudo: nvidia_gpu_tools.py: command not found\n")
    assert gpu_tools.complaint(done) is not None
    assert not gpu_tools.verdict(done)
    assert not gpu_tools.verdict(Done(1, "", ""))  # another one holds the lock


def test_knobs_are_what_the_log_states() -> None:
    said = "".join(
        f"{LOG}GPU 0000:0f:00.0 H100 {line}\n"
        for line in ("ECC is enabled", "MIG mode is disabled", "CC mode is off")
    )
    assert gpu_tools.knobs(Done(0, "", said)) == {
        "ecc": "enabled",
        "mig": "disabled",
        "cc": "off",
    }


def test_clearing_resets_first_and_one_tool_runs_per_gpu() -> None:
    words = list(gpu_tools.clear_memory("0000:0f:00.0"))
    assert words[:2] == ["flock", "--nonblock"]
    assert "--reset-with-sbr" in words
    assert "--clear-memory" in words
