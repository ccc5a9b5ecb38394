"""A machine of its own within this one, for programs that write /etc, add accounts and make namespaces.

Nothing is installed on the machine underneath and nothing of it is written: all is in a mount namespace
and a process namespace, which end with the process that holds them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.rootless.node.model import RootlessNodeError

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HERE = Path(__file__).parent
_SECONDS = 300
"""Longer than any command takes that ends: an image is unpacked, beside whatever the machine does."""


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
        """What a command prints that must succeed.

        Raises:
            RootlessNodeError: it failed, with what it said.
        """
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
    """A machine with the files of the layers over those of this one.

    Args:
        layers: folders; a later one lies over an earlier one.
        bound: files and folders of this machine, and where they are in that one.
        groups: cgroups that are removed when it is gone, even if this process was killed.

    Raises:
        RootlessNodeError: this machine lets root make no mounts of its own.
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
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RootlessNodeError("the machine has no pipes")
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
