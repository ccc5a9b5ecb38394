"""Provider processes: which program serves a package, how it is started and ended."""

import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from engine.leash import Leash
from engine.request import Request

DYNAMIC = "pulumi-python"
"""The package of dynamic resources; its provider is part of Pulumi's SDK."""

OWN = "pulumi"
"""The package of what Pulumi's engine serves itself."""

STAND_INS = ("command", "gcp", "kubernetes")
"""Packages that the lab can serve itself where the real plugin is not installed."""

START_SECONDS = 60
END_SECONDS = 60
"""How long a process may take to end after its connections have."""
_LOOK_SECONDS = 0.5
_READ_SECONDS = 5
"""How long is waited for the rest of an output: where somebody else holds it open, it does not end."""
_LAST_LINES = 20


class PluginError(Exception):
    """A provider that cannot be found or started."""


class PluginProcess:
    """One running provider process and what it said last."""

    def __init__(
        self,
        name: str,
        process: subprocess.Popen[bytes],
        leash: Leash,
        say: Callable[[str], None],
    ) -> None:
        self.name = name
        self._process = process
        self._leash = leash
        self._say = say
        self._last: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._port: str | None = None
        self._ready = threading.Event()
        self._readers = [
            threading.Thread(target=self._read, args=(process.stdout, True), daemon=True),
            threading.Thread(target=self._read, args=(process.stderr, False), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def address(self) -> str:
        """Where the provider listens; waits until it says so.

        Raises:
            PluginError: it ended first, said something else, or took too long.
        """
        if not self._ready.wait(START_SECONDS):
            self.kill()
            raise PluginError(
                f"the provider for '{self.name}' did not say its port within {START_SECONDS} s"
                f"{self.last_words()}"
            )
        if self._port is not None and not self._port.isdigit():
            self.kill()
            raise PluginError(
                f"the provider for '{self.name}' said {self._port!r} where its port was expected"
                f"{self.last_words()}"
            )
        if self._port is None:
            code = self._process.wait()
            self._read_all()
            raise PluginError(
                f"the provider for '{self.name}' ended with exit code {code} before it served"
                f"{self.last_words()}"
            )
        return f"127.0.0.1:{self._port}"

    def ended(self, serves: Callable[[], bool]) -> int | None:
        """The exit code of a process whose connection broke; None if it goes on.

        Connections break first, and on a busy machine it may be long until the process has followed.

        Args:
            serves: whether it answers over another connection.
        """
        give_up = time.monotonic() + END_SECONDS
        while time.monotonic() < give_up:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_LOOK_SECONDS)
                self._read_all()
                return code
            if serves():
                break
        return None

    def last_words(self) -> str:
        """The last lines of its output, ready to be put behind a message."""
        text = "\n".join(self._last)
        return f"; its last output:\n{text}" if text else ""

    def kill(self) -> None:
        """End it with all that it started, and collect it."""
        # While nobody has collected it, its number is its own and that of its group.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._leash.let_go()
        self._read_all()

    def _read_all(self) -> None:
        for reader in self._readers:
            reader.join(_READ_SECONDS)

    def _read(self, stream: object, first_is_port: bool) -> None:  # noqa: FBT001
        for raw in stream:  # type: ignore[attr-defined]
            line = raw.decode(errors="replace").rstrip("\r\n")
            if first_is_port and not self._ready.is_set():
                self._port = line.strip()
                self._ready.set()
                continue
            self._last.append(line)
            self._say(line)
        if first_is_port:
            self._ready.set()


class Plugins:
    """Finds and starts providers for one deployment."""

    def __init__(
        self,
        request: Request,
        engine_address: str,
        say: Callable[[str], None],
    ) -> None:
        self._request = request
        self._engine = engine_address
        self._say = say

    def start(self, package: str, version: str = "") -> PluginProcess:
        """Start a provider.

        Raises:
            PluginError: there is none for the package, or it cannot be executed.
        """
        leash = Leash()
        try:
            command = [*self._command(leash, package, version), self._engine]
            process = subprocess.Popen(
                command,
                cwd=program_folder(self._request),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(leash.end,),
                # A Ctrl-C goes to the engine alone, which lets running steps end.
                start_new_session=True,
            )
        except OSError as error:
            raise PluginError(
                f"the provider for '{package}' cannot be started: {command[0]}: {error.strerror}"
            ) from error
        finally:
            leash.handed_over()
        return PluginProcess(package, process, leash, self._say)

    def _command(self, leash: Leash, package: str, version: str) -> Sequence[str]:
        """How it is started. A plugin of Pulumi asks the engine now and then, others need the leash."""
        if package == DYNAMIC:
            return leash.command(python_command(self._request), "pulumi.dynamic")
        if package == OWN:
            raise PluginError("the embedded engine serves no resources of its own (StackReference)")
        name = f"pulumi-resource-{package}"
        if own := self._from_project(package, name):
            return own
        path = self._environment().get("PATH")
        if not os.environ.get("PULUMI_IGNORE_AMBIENT_PLUGINS") and (
            found := shutil.which(name, path=path)
        ):
            return [found]
        home = pathlib.Path(os.environ.get("PULUMI_HOME") or pathlib.Path.home() / ".pulumi")
        installed = home / "plugins" / f"resource-{package}-v{version}" / name
        if version and installed.is_file():
            return [str(installed)]
        if package in STAND_INS:
            return leash.command([sys.executable, "-P"], f"engine.stand_ins.{package}")
        at = f" {version}" if version else ""
        raise PluginError(
            f"no provider for the package '{package}'{at}: there is no {name} on PATH and no"
            f" {installed if version else home / 'plugins'}; install it with"
            f" `pulumi plugin install resource {package}{at}` or put it on PATH"
        )

    def _from_project(self, package: str, name: str) -> Sequence[str]:
        project = self._request.project
        for entry in project.plugins.get("providers") or ():
            if entry.get("name") == package and entry.get("path"):
                program = project.folder / entry["path"] / name
                if not program.is_file():
                    raise PluginError(
                        f"the plugin for '{package}' that Pulumi.yaml names has no {program};"
                        " plugins in source form need the Pulumi CLI"
                    )
                return [str(program)]
        return ()

    def _environment(self) -> dict[str, str]:
        options = self._request.project.runtime_options
        plain = {k: v.value for k, v in self._request.config.items() if not v.secret}
        return {
            **os.environ,
            "PULUMI_PROJECT": self._request.project.name,
            # Pulumi puts secrets in here too. Providers get those over gRPC, where no other
            # process can read them.
            "PULUMI_CONFIG": json.dumps(plain),
            **{f"PULUMI_RUNTIME_{k.upper()}": str(v) for k, v in options.items()},
        }


def program_folder(request: Request) -> pathlib.Path:
    """The folder of the program, where it and its providers run."""
    project = request.project
    main = project.folder / project.main if project.main else project.folder
    return main.parent if main.is_file() else main


def python_command(request: Request) -> list[str]:
    """The Python that runs the program and its dynamic providers.

    Raises:
        PluginError: Pulumi.yaml names a virtual environment that does not exist.
    """
    if command := os.environ.get("PULUMI_PYTHON_CMD"):
        return [command]
    options = request.project.runtime_options
    toolchain = options.get("toolchain", "pip")
    # uv keeps its environment there by itself; poetry has to be asked.
    virtualenv = options.get("virtualenv") or (".venv" if toolchain == "uv" else None)
    if not virtualenv and toolchain == "poetry":
        raise PluginError(
            "Pulumi.yaml leaves it to poetry where the virtual environment is, which the embedded"
            " engine does not ask; set runtime.options.virtualenv or PULUMI_PYTHON_CMD"
        )
    if not virtualenv:
        return [sys.executable]
    folder = request.project.folder / str(virtualenv)
    python = folder / "bin" / "python"
    if not python.exists():
        raise PluginError(
            f"the virtual environment {folder} that Pulumi.yaml names does not exist; install the"
            " program's packages there, or set PULUMI_PYTHON_CMD to the Python to use"
        )
    return [str(python)]


def end_all(processes: Sequence[PluginProcess]) -> None:
    threads = [threading.Thread(target=p.kill) for p in processes]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 5
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
