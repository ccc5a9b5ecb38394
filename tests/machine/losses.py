"""Power and connections that are lost while a provider's step runs a certain program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from gpuclusters.core.errors import UnreachableError
from tests.machine.conftest import RealMachine
from tests.providers.provider_process import Made, ProviderProcess, StepFailed

REACHED = "/run/lab-reached"
Loss = tuple[str, str, Callable[[RealMachine], None]]
"""A program, words among its arguments, and what is lost then."""


@contextlib.contextmanager
def reported(machine: RealMachine, program: str, words: str) -> Iterator[None]:
    """A program that says on the machine that it was called with these words, waits a moment, and runs."""
    own = f"/usr/local/sbin/{program}"
    keep = f"[ ! -e {own} ] || mv {own} {own}.real"
    real = machine.sudo(f"{keep}; PATH=/usr/sbin:/usr/bin command -v {program}").strip()
    text = f'case "$*" in *"{words}"*) touch {REACHED}; sleep 1 ;; esac\nexec {own}.real "$@"\n'
    machine.sudo(f"[ -e {own}.real ] || ln -s {real} {own}.real; rm -f {REACHED}")
    machine.sudo(f"printf '#!/bin/sh\n{text}' >{own}; chmod +x {own}; sync")
    try:
        yield
    finally:
        machine.sudo(f"mv {own}.real {own}; [ ! -L {own} ] || rm {own}")


def power(machine: RealMachine) -> None:
    """Off, and on again."""
    machine.cut_power()


def connections(machine: RealMachine) -> None:
    """All of them; what they have started goes on."""
    with contextlib.suppress(UnreachableError):
        machine.run("pkill -9 -u operator sshd; sleep 60", as_root=True)


def create(
    machine: RealMachine,
    provider: ProviderProcess,
    kind: type,
    inputs: dict[str, object],
    losses: Sequence[Loss],
) -> Made:
    """A resource that each of these losses interrupts, one after the other, before it is made."""
    for program, words, lose in losses:
        with reported(machine, program, words), ThreadPoolExecutor(1) as running:
            step = running.submit(provider.create, kind, inputs)
            while machine.run(f"test -e {REACHED}").returncode:
                assert not step.done(), f"no step runs {program} {words}: {step.exception()}"
            lose(machine)
            with contextlib.suppress(StepFailed):
                step.result()
    made = provider.create(kind, inputs)
    assert provider.read(kind, made).outputs["drift"] == []
    return made
