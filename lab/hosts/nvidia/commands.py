"""Stand-ins for NVIDIA's commands: on a host that, as `caas` demands, has no driver they say so."""

from __future__ import annotations

from lab.hosts.call import Answer, Call
from lab.hosts.nvidia import nvidia_ctk, nvidia_smi


def smi(call: Call) -> Answer:
    """`nvidia-smi`: where GPUs belong to VFIO, whatever is asked fails like this."""
    if set(call.arguments) & {"-h", "--help"}:
        return Answer.out("NVIDIA System Management Interface (stand-in of a simulated host)")
    if call.machine.board.runs_the_driver:
        return nvidia_smi.run(call)
    return Answer.out(nvidia_smi.NO_DRIVER, nvidia_smi.NO_DRIVER_EXIT)


def ctk(call: Call) -> Answer:
    """`nvidia-ctk`: its version, `cdi list`, and the failure of `cdi generate` without a driver."""
    if call.machine.board.runs_the_driver:
        return nvidia_ctk.run(call)
    words = [argument for argument in call.arguments if argument not in {"--quiet", "-q"}]
    if words in (["--version"], ["-v"]):
        return Answer.out(
            "NVIDIA Container Toolkit CLI version 1.20.1\n(stand-in of a simulated host)"
        )
    if words == ["cdi", "list"]:
        return nvidia_ctk.list_devices(call)
    if words[:2] == ["cdi", "generate"]:
        return Answer.error(
            'level=error msg="failed to generate CDI spec: failed to create device CDI specs: '
            'failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND"',
            1,
        )
    return Answer.error(f"No help topic for '{' '.join(words)}'", 3)
