"""Logging in to a machine for the first time: as often as it takes, until a deadline."""

from __future__ import annotations

from gpuclusters.adapters.errors import AdapterError, DeniedError, UnreachableError
from gpuclusters.adapters.scripts import run_script
from gpuclusters.adapters.ssh import SshHost
from gpuclusters.core.converge import Clock

PAUSE_SECONDS = 5.0


def wait_until_ready(
    host: SshHost, clock: Clock, seconds: float, *, pause: float = PAUSE_SECONDS
) -> None:
    """Log in and wait until the machine has been set up.

    A machine that shows another key is not waited for: it had its key before its SSH server started.

    Args:
        host: the machine; it should try each connection once.
        clock: of this computer.
        seconds: how long all of it may take.
        pause: seconds between two attempts.

    Raises:
        AdapterError: not there in time, another key, or its set-up failed.
    """
    end = clock.now() + seconds
    while True:
        try:
            run_script(
                host,
                "gcp/first-login",
                [],
                tried="wait for its set-up",
                repeatable=True,
                timeout_seconds=max(1.0, end - clock.now()),
            )
        except (UnreachableError, DeniedError) as error:
            # Not let in: the account is made after the SSH server has started.
            if clock.now() + pause >= end:
                raise _late(error, seconds) from error
            clock.sleep(pause)
        else:
            return


def _late(error: AdapterError, seconds: float) -> AdapterError:
    return type(error)(
        error.where,
        error.tried,
        f"{error.problem}, for {seconds:g} s since it was made",
        f"{error.remedy}; what it says while it boots: `gcloud compute instances"
        " get-serial-port-output`",
    )
