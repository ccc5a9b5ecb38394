"""A machine of its own within this one, for programs that write /etc, add accounts and make namespaces.

Nothing is installed on the machine underneath and nothing of it is written: all is in a mount namespace
and a process namespace, which end with the process that holds them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).with_suffix(".sh")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 60


@dataclass(frozen=True, slots=True)
class PrivateMachine:
    """One that runs."""

    holder: int
    """Process whose namespaces it is."""

    def run(
        self,
        *argv: str,
        account: str = "",
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """A command in it, as root or as an account, with none of this process's environment."""
        home = f"/home/{account}" if account else "/root"
        become = ["setpriv", "--reuid", account, "--regid", account, "--init-groups"]
        return subprocess.run(
            [
                *("nsenter", "--target", str(self.holder), "--mount", "--pid", "--root", "--wd"),
                *("--", *(become if account else ()), *argv),
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            env={"PATH": PATH, "LC_ALL": "C", "HOME": home, **(environment or {})},
        )

    def output(self, *argv: str, account: str = "", stdin: str = "", **environment: str) -> str:
        """What a command prints that must succeed."""
        done = self.run(*argv, account=account, stdin=stdin, environment=environment)
        assert done.returncode == 0, f"{argv}: {done.stderr or done.stdout}"
        return done.stdout

    def script(self, file: Path, *arguments: str, account: str = "", **environment: str) -> str:
        """What a script of ours prints, sent as it is sent to a host."""
        text = file.read_text()
        return self.output("sh", "-s", "--", *arguments, account=account, stdin=text, **environment)

    def write(self, path: str, text: str) -> None:
        """A file of root's."""
        self.output("sh", "-c", 'mkdir -p "${0%/*}" && cat >"$0"', path, stdin=text)

    def read(self, path: str) -> str:
        """A file of it."""
        return self.output("cat", path)


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
def private_machine(*layers: Path) -> Iterator[PrivateMachine]:
    """A machine with the files of the layers over those of this one; skips, with the reason, elsewhere."""
    needed()
    process = subprocess.Popen(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"),
            *("sh", str(SCRIPT), *map(str, layers)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    try:
        if process.stdout.readline() != "ready\n":
            said = process.stderr.read().strip().splitlines()[-1:]
            pytest.skip(f"this machine lets root make no mounts of its own: {' '.join(said)}")
        (held,) = psutil.Process(process.pid).children()
        yield PrivateMachine(held.pid)
    finally:
        # With its first process all others of the machine end.
        process.stdin.close()
        process.wait(timeout=_SECONDS)
        process.stdout.close()
        process.stderr.close()
