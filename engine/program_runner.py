"""Runs a Pulumi program in its own process: what the Python language host does for the CLI.

`leash.py` starts it by path, with the Python of the program, which need not know this package. The one
argument is the number of a file descriptor from which the settings are read as JSON; secrets of
the configuration must not be seen in the arguments or the environment.
"""

import sys

# The program's own folder takes its place once it is known.
sys.path.pop(0)

import asyncio
import json
import logging
import os
import pathlib
import runpy
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MESSAGE_SHOWN = 32
"""Exit code: the program failed, and the user has been told why."""

LOOK_SECONDS = 0.5
LOOK_SECONDS_EACH = 5e-5
"""How often is looked for work that was begun while others were waited for: at all, and for each
that is waited for."""


def main() -> int:
    """Run the program; give the exit code."""
    import pulumi

    with os.fdopen(int(sys.argv[1])) as stream:
        settings = json.load(stream)
    folder = pathlib.Path(settings["folder"])
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    sys.argv = [settings["program"], *settings["arguments"]]
    pulumi.runtime.set_all_config(settings["config"], settings["secret_keys"])
    pulumi.runtime.configure(
        pulumi.runtime.Settings(
            monitor=settings["monitor"],
            engine=settings["engine"],
            project=settings["project"],
            stack=settings["stack"],
            parallel=settings["parallel"],
            dry_run=settings["preview"],
            organization=settings["organization"],
            root_directory=settings["root"],
        )
    )
    return _run(settings["program"], settings["workers"], debug=settings["debug"])


def _run(program: str, workers: int, *, debug: bool) -> int:
    import pulumi

    async def start() -> None:
        await pulumi.runtime.run_in_stack(lambda: _execute(program))

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # A registration takes a thread until it is done: as many as the engine serves at a time.
    loop.set_default_executor(ThreadPoolExecutor(workers))
    if not debug:
        # Nobody is shown them, and the SDK waits for an answer to each: three a resource.
        pulumi.log.debug = _say_nothing
    stack = pulumi.runtime.stack
    stack.wait_for_rpcs = _waiting_in_bulk(stack.wait_for_rpcs)  # type: ignore[assignment]
    # After a failure tasks are left unfinished on purpose.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    code = MESSAGE_SHOWN
    try:
        loop.run_until_complete(start())
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            pulumi.log.error(error.code)
    except pulumi.RunError as error:
        pulumi.log.error(str(error))
        code = 1
    except Exception as error:  # noqa: BLE001 (whatever the program raises is shown)
        pulumi.log.error(f"Program failed with an unhandled exception:\n{_shown(error)}")
    finally:
        _drain(loop)
    return code


def _say_nothing(*_: object, **__: object) -> None:
    """Stands for a message that would not be shown."""


def _waiting_in_bulk(
    wait_for_rpcs: Callable[..., Awaitable[None]],
) -> Callable[..., Awaitable[None]]:
    """The SDK's wait for what the program has begun, made linear.

    The SDK looks at all that is unfinished each time that something is finished: for thousands of
    resources that is most of a run. Here it gets to look when all is finished, or something failed.
    """
    from pulumi.runtime.settings import SETTINGS

    def tracked() -> list[asyncio.Task[Any]]:
        with SETTINGS.lock:
            return list(SETTINGS.outputs)

    async def wait(*args: Any, **kwargs: Any) -> None:
        while outputs := tracked():
            # Those that have failed stay among the tracked ones; the others leave when done.
            for task in outputs:
                if task.done():
                    await task
            # A look costs more the more there is to look at.
            timeout = max(LOOK_SECONDS, len(outputs) * LOOK_SECONDS_EACH)
            await asyncio.wait(outputs, timeout=timeout, return_when=asyncio.FIRST_EXCEPTION)
        await wait_for_rpcs(*args, **kwargs)

    return wait


def _execute(program: str) -> None:
    runpy.run_path(program, run_name="__main__")


def _drain(loop: asyncio.AbstractEventLoop) -> None:
    """Send what is still on its way to the user."""
    import pulumi

    pulumi.runtime.settings.SETTINGS.outputs.clear()
    pending = [t for t in asyncio.all_tasks(loop) if not t.done()]
    for task in pending:
        task.cancel()
    sys.stdout.flush()
    sys.stderr.flush()


def _shown(error: Exception) -> str:
    """The traceback without the frames of this file and of what runs the program."""
    frames = traceback.extract_tb(error.__traceback__)
    own = {__file__, runpy.__file__, "<frozen runpy>", asyncio.base_events.__file__}
    first = next((i for i, f in enumerate(frames) if f.filename not in own | {"<string>"}), 0)
    while first < len(frames) - 1 and "/pulumi/runtime/" in frames[first].filename:
        first += 1
    kept = [f for f in frames[first:] if f.filename not in own] or list(frames)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(kept)]
    return "".join([*lines, *traceback.format_exception_only(error)])


if __name__ == "__main__":
    status: Any = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of unfinished registrations must not keep the process alive.
    os._exit(status)
