"""A machine of its own within this one, for programs that write /etc, add accounts and make namespaces.

Nothing is installed on the machine underneath and nothing of it is written: all is in a mount namespace
and a process namespace, which end with the process that holds them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HERE = Path(__file__).parent
_SECONDS = 300
"""Longer than any command takes that ends: an image is unpacked, beside whatever the machine does."""


class RootlessNodeError(RuntimeError):
    """A rootless node cannot be started or asked; one sentence for the user."""


@dataclass(frozen=True, slots=True)
class PrivateMachine:
    holder: int
    """Process whose namespaces it is."""

    def command(self, *argv: str, account: str = "") -> list[str]:
        """The command line that runs `argv` in it, as root or as an account."""
        become = ["setpriv", "--reuid", account, "--regid", account, "--init-groups"]
        return [
            *("nsenter", "--target", str(self.holder), "--mount", "--pid", "--root", "--wd"),
            *("--", *(become if account else ()), *argv),
        ]

    def run(
        self,
        *argv: str,
        account: str = "",
        stdin: str | bytes = "",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command in it, with none of this process's environment."""
        done = subprocess.run(
            self.command(*argv, account=account),
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env=self.environment(account) | dict(environment or {}),
        )
        said, complained = (out.decode(errors="replace") for out in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, said, complained)

    def environment(self, account: str = "") -> dict[str, str]:
        return {"PATH": PATH, "LC_ALL": "C", "HOME": f"/home/{account}" if account else "/root"}

    def output(
        self, *argv: str, account: str = "", stdin: str | bytes = "", **environment: str
    ) -> str:
        """What a command prints that must succeed."""
        done = self.run(*argv, account=account, stdin=stdin, environment=environment)
        if done.returncode:
            said = done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}"
            raise RootlessNodeError(f"`{' '.join(argv)}` failed: {said}")
        return done.stdout

    def script(self, file: Path, *arguments: str, account: str = "", **environment: str) -> str:
        """What a script prints, sent as it is sent to a host."""
        text = file.read_text()
        return self.output("sh", "-s", "--", *arguments, account=account, stdin=text, **environment)

    def write(self, path: str, content: str | bytes) -> None:
        self.output("sh", "-c", 'mkdir -p "${0%/*}" && cat >"$0"', path, stdin=content)

    def read(self, path: str) -> str:
        return self.output("cat", path)


@contextmanager
def private_machine(
    *layers: Path,
    bound: Mapping[Path, str] | None = None,
    groups: Sequence[Path] = (),
) -> Iterator[PrivateMachine]:
    """A machine with the files of the layers over those of this one, a later one over an earlier one.

    `bound` says which files and folders of this machine are where in that one. `groups` are cgroups that are
    removed when it is gone, even if this process was killed.
    """
    mounts = [word for source, target in (bound or {}).items() for word in (str(source), target)]
    process = subprocess.Popen(
        [
            *("sh", str(_HERE / "keep.sh"), *map(str, groups), "--"),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *("sh", str(_HERE / "machine.sh"), *map(str, layers), "--", *mounts),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What ends a test run must not end what cleans up after it.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        if process.stdout.readline() != "ready\n":
            process.stdin.close()
            said = " ".join(process.stderr.read().strip().splitlines()[-1:])
            raise RootlessNodeError(f"this machine lets root make no mounts of its own: {said}")
        (unshared,) = psutil.Process(process.pid).children()
        (held,) = unshared.children()
        yield PrivateMachine(held.pid)
    finally:
        # With its first process all others of the machine end.
        process.stdin.close()
        process.wait(timeout=_SECONDS)
        process.stdout.close()
        process.stderr.close()


def needed() -> None:
    """Skips, with the reason, where there can be none: asked before anything is fetched or built."""
    if sys.platform != "linux":
        pytest.skip(f"namespaces are Linux's; this is {sys.platform}")
    if os.geteuid() != 0:
        pytest.skip("a machine within this one is made by root, and this is not root")
    for program in ("unshare", "nsenter", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} of util-linux is not installed here")


@contextmanager
def machine_or_skip(*layers: Path) -> Iterator[PrivateMachine]:
    """A machine; skips, with the reason, elsewhere."""
    needed()
    with ExitStack() as stack:
        try:
            machine = stack.enter_context(private_machine(*layers))
        except RootlessNodeError as error:
            pytest.skip(str(error))
        yield machine
