"""Running the `helm` program: its own folders, secrets in files without a name, its errors as sentences."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import yaml

from engine.answers import ProviderError
from engine.stand_ins.calls import Cancelled
from engine.stand_ins.kubernetes.kubeconfig import Cluster
from engine.stand_ins.unnamed_file import path_of, unnamed

_SLACK_SECONDS: Final = 60.0  # helm ends itself at its own timeout; this is for one that does not
_STOP_SECONDS: Final = 60.0
_OUTPUT_CHARACTERS: Final = 4000


class HelmError(ProviderError):
    """helm refused or failed; the message is its own, cut to what matters."""


@dataclass
class Helm:
    cluster: Cluster
    cancelled: threading.Event
    _running: set[subprocess.Popen[str]] = field(default_factory=set)
    _calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, arguments: Sequence[str], *, seconds: float, values: Mapping[str, Any] | None = None
    ) -> str:
        """What helm prints; its kubeconfig and `values` reach it in files that have no name.

        Raises:
            HelmError: helm failed; its last line says why.
            Cancelled: the engine asked to stop; helm was told to end and did.
        """
        if self.cancelled.is_set():
            raise Cancelled("stopped before helm was started: the run was cancelled")
        program = str(self._program())
        with (
            self._counted(),
            # A folder of its own for each call. Nothing in it is secret: a death may leave it.
            tempfile.TemporaryDirectory(prefix="helm-call-") as folder,
            unnamed(self.cluster.kubeconfig.encode()) as kubeconfig,
            unnamed(yaml.safe_dump(dict(values or {}), sort_keys=False).encode()) as given,
        ):
            flags = ["--kubeconfig", path_of(kubeconfig)]
            if values is not None:
                flags += ["--values", path_of(given)]
            process = subprocess.Popen(
                [program, *arguments, *flags],
                pass_fds=(kubeconfig.fileno(), given.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=_environment(Path(folder)),
            )
            with self._tracked(process):
                try:
                    output, errors = process.communicate(timeout=seconds + _SLACK_SECONDS)
                except subprocess.TimeoutExpired as error:
                    raise HelmError(
                        f"helm {arguments[0]} did not end within {seconds:g} s"
                    ) from error
        if process.returncode != 0:
            if self.cancelled.is_set():
                raise Cancelled(f"helm {arguments[0]} was stopped: the run was cancelled")
            raise HelmError(_reason(errors))
        return output

    def json(self, arguments: Sequence[str], *, seconds: float = 60) -> dict[str, Any] | None:
        """What helm prints as JSON; None if there is no such release.

        Raises:
            HelmError: helm failed for another reason.
        """
        try:
            found = json.loads(self.run([*arguments, "--output", "json"], seconds=seconds))
        except HelmError as error:
            if "not found" in str(error):
                return None
            raise
        return found if isinstance(found, dict) else {}

    def stop(self) -> None:
        """Tell what runs to end: helm marks its release as failed and does."""
        with self._lock:
            for process in self._running:
                process.terminate()

    def close(self) -> None:
        """Stop what runs, see it end, and its files, which hold secrets, gone."""
        self.stop()
        if not self._all_over():
            with self._lock:
                for process in self._running:
                    process.kill()
            self._all_over()

    def _all_over(self) -> bool:
        deadline = time.monotonic() + _STOP_SECONDS
        while self._calls and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self._calls

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A call goes on until its folder is removed."""
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1

    @contextmanager
    def _tracked(self, process: subprocess.Popen[str]) -> Iterator[None]:
        with self._lock:
            self._running.add(process)
        if self.cancelled.is_set():
            process.terminate()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)
            if process.poll() is None:
                process.kill()
                process.wait()

    def _program(self) -> Path:
        # Who has programs says so by an entry point: the lab builds and caches its own.
        for supplier in entry_points(group="gpu_clusters_engine.programs"):
            try:
                return Path(supplier.load()("helm"))
            except Exception as error:
                raise ProviderError(f"Helm releases need the program helm: {error}") from error
        found = shutil.which("helm")
        if found is None:
            raise ProviderError(
                "Helm releases need the program helm, which is not on PATH; "
                "install it (https://helm.sh/docs/intro/install)"
            )
        return Path(found)


def _environment(folder: Path) -> dict[str, str]:
    """The caller's environment without what would make helm look at the caller's files."""
    mine = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("HELM_") and key != "KUBECONFIG"
    }
    for kind in ("CACHE", "CONFIG", "DATA"):
        mine[f"HELM_{kind}_HOME"] = str(folder / kind.lower())
    return mine


def _reason(errors: str) -> str:
    """Helm's own sentence: its `Error:` line and what follows, else the end of what it said."""
    text = errors.strip()
    start = text.rfind("Error:")
    reason = text[start:].removeprefix("Error:").strip() if start >= 0 else text
    return reason[-_OUTPUT_CHARACTERS:] or "helm failed without a word"
