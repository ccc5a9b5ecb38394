"""Both programs that stand in for all commands of a simulated host ask its server alike."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import faults, tree
from tests.fixtures.hosts import Hosts, SimulatedHost


class Asks:
    """A host whose stand-ins ask its server in one of the two ways."""

    def __init__(self, host: SimulatedHost) -> None:
        self.host = host

    def __call__(self, *words: str, before: str = "", after: str = "", **options: Any) -> Any:
        # The server answers `sudo` alone on a line itself.
        return self.host.run(f": ; {before}{shlex.join(words)}{after}", **options)


@pytest.fixture(params=["perl", "python"])
def asks(request: pytest.FixtureRequest, hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> Asks:
    (host,) = hosts()
    if request.param == "python":
        monkeypatch.setattr(tree, "PERL", "/no/perl")
    elif not Path(tree.PERL).exists():
        pytest.skip("no Perl on this machine")
    tree.install_client(host.root)
    return Asks(host)


def test_streams_arguments_variables_and_the_exit_code_pass_unchanged(asks: Asks) -> None:
    script = 'cat; printf "[%s]" "$@"; pwd; echo to error >&2; exit 7'
    odd = ["", "two words", "a\nb", "ö", "$x'"]
    words = ("/usr/local/bin/sudo", "-n", "sh", "-c", script, "sh", *odd)
    done = asks(*words, before="cd /tmp; ", stdin="sent\n")
    assert done.stdout == "sent\n" + "".join(f"[{word}]" for word in odd) + "/tmp\n"
    assert (done.stderr, done.returncode) == ("to error\n", 7)
    done = asks("sudo", "-n", "-E", "printenv", "LC_TEST", before="LC_TEST='a = b' ")
    assert done.stdout == "a = b\n"
    # A locale that is not there is no reason for a word on standard error.
    assert asks("sudo", "-n", "true", before="LC_ALL=xx_YY ").stderr == ""


def test_large_answers_come_whole_and_a_reader_may_leave(asks: Asks) -> None:
    # More than a pipe holds, for a reader that leaves after the first line.
    big = "x" * 300_000
    asks.host.path("/etc/systemd/system/big.service").write_text(f"[Service]\nExecStart=/{big}\n")
    assert len(asks("systemctl", "cat", "big.service").stdout) > len(big)
    first = asks("systemctl", "cat", "big.service", after=" | head -1")
    assert (first.stdout.count("\n"), first.returncode) == (1, 0)


def test_without_a_server_the_command_says_so(asks: Asks) -> None:
    socket = asks.host.path(f"/{tree.SOCKET}")
    away = socket.with_name("away")
    socket.rename(away)
    done = asks("systemctl", "start", "x")
    away.rename(socket)
    assert (done.stderr, done.returncode) == ("systemctl: the simulated host has gone away\n", 125)


LINES = (
    "sudo -n sh -c 'id -u; pwd; env | sort; cat; exit 3'",
    "sudo -n -u operator sh -c 'id -u; pwd; env | sort'",
    "sudo -n LANG=C A='b c' printenv LANG A",
    "sudo -n there-is-no-such-program",
    "sudo -n /etc/hostname",
    "sudo -n",
    "sudo -n -u nobody-knows id",
    "sudo --version",
    # With these a shell has more to do.
    "sudo -n true; echo more",
    "sudo -n echo $HOME",
    "sudo -n ls /etc/host*",
    "sudo -n true > /tmp/x",
    "sudo -n echo 'open",
)


def test_a_line_that_begins_with_sudo_does_what_it_does_in_a_shell(hosts: Hosts) -> None:
    (host,) = hosts()

    def answers(line: str) -> tuple[int, str, str]:
        done = host.run(line, stdin="sent\n")
        return done.returncode, done.stdout, done.stderr

    def differing() -> list[str]:
        return [line for line in LINES if answers(line) != answers(f": ; {line}")]

    assert differing() == []
    host.inject(faults.SudoNeedsPassword())
    assert differing() == []
    assert answers("sudo -n true") == (1, "", "sudo: a password is required\n")
