"""The user's program as a process of its own."""

import contextlib
import json
import os
import pathlib
import subprocess
import threading
from collections.abc import Callable, Sequence

from engine.leash import Leash
from engine.plugins import PluginError, program_folder, python_command
from engine.request import Request

MESSAGE_SHOWN = 32
_RUNNER = pathlib.Path(__file__).with_name("program_runner.py")
_END_SECONDS = 2


class ProgramError(Exception):
    """A program that cannot be started; the message is for the user."""


class Program:
    """Started at once, so that it loads while the engine gets ready; runs when told where to."""

    def __init__(self, request: Request, say: Callable[[str], None]) -> None:
        """Start the program's Python.

        Raises:
            ProgramError: there is no program, or no Python to run it.
        """
        self._request = request
        self._say = say
        self._folder = program_folder(request)
        self._file = self._find()
        read, self._write = os.pipe()
        self._leash = Leash()
        try:
            self._process = subprocess.Popen(
                self._leash.command(self._python(), str(_RUNNER), str(read)),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(read, self._leash.end),
                # A Ctrl-C goes to the engine alone, which lets running steps end.
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._write)
            raise ProgramError(f"the program cannot be started: {error}") from error
        finally:
            os.close(read)
            self._leash.handed_over()
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]

    def run(self, address: str, workers: int) -> None:
        """Let it run against the engine at an address."""
        for reader in self._readers:
            reader.start()
        request = self._request
        settings = {
            "folder": str(self._folder),
            "program": str(self._file),
            "arguments": [],
            "root": str(request.project.folder),
            "project": request.project.name,
            "stack": request.stack,
            "organization": request.organization,
            "parallel": request.parallel,
            "preview": request.preview,
            "monitor": address,
            "engine": address,
            "config": {key: value.value for key, value in request.config.items()},
            "secret_keys": [key for key, value in request.config.items() if value.secret],
            "workers": workers,
            "debug": request.debug,
        }
        with contextlib.suppress(BrokenPipeError), os.fdopen(self._write, "w") as stream:
            # A program that has ended already says why by its output and exit code.
            json.dump(settings, stream)
        self._write = -1

    def wait(self) -> int:
        """Wait for its end; give the exit code, with all output read."""
        code = self._process.wait()
        for reader in self._readers:
            reader.join(5)
        return code

    def end(self) -> None:
        """End it, giving it a moment to do so by itself."""
        try:
            self._end()
        finally:
            self._leash.let_go()

    def _end(self) -> None:
        if self._write >= 0:
            # It has not been told to run, and nobody reads what it says.
            os.close(self._write)
            self._process.kill()
            self._process.communicate()
            return
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(5)

    def _find(self) -> pathlib.Path:
        main = self._request.project.main
        path = self._request.project.folder / main if main else self._folder
        if path.is_file() or (path / "__main__.py").is_file():
            return path
        raise ProgramError(f"there is no program: {path / '__main__.py'} does not exist")

    def _python(self) -> Sequence[str]:
        try:
            return python_command(self._request)
        except PluginError as error:
            raise ProgramError(str(error)) from error

    def _read(self, stream: object) -> None:
        for raw in stream:  # type: ignore[attr-defined]
            self._say(raw.decode(errors="replace").rstrip("\r\n"))
