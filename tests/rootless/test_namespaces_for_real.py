"""User namespaces of an account, by the real rootlesskit, newuidmap and slirp4netns, and by the scripts that
prepare a host. In a machine within this one; skipped with the reason where there can be none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuclusters.compat import known_errors
from gpuclusters.core import scripts
from gpuclusters.rootless.decide import LEAST_IDS, next_range
from gpuclusters.rootless.model import LiveRootless
from lab.tools.debian_packages import unpacked
from tests.rootless.node.machine import PrivateMachine, machine_or_skip, needed
from tests.rootless.node.node import PACKAGES

SCRIPTS = Path(__file__).resolve().parents[2] / "gpuclusters/rootless/scripts"


@pytest.fixture(scope="module")
def machine() -> Iterator[PrivateMachine]:
    """A machine with Debian's packages for rootless containers."""
    needed()
    with machine_or_skip(unpacked("rootless", PACKAGES)) as made:
        made.script(SCRIPTS / "account.sh", "create", "prober")
        done = made.run("unshare", "--user", "true", account="prober")
        if done.returncode:
            pytest.skip(f"the kernel gives accounts no user namespaces: {done.stderr.strip()}")
        yield made


def looked_at(machine: PrivateMachine, account: str) -> LiveRootless:
    """What our two inspections say."""
    host = machine.script(SCRIPTS / "inspect.sh", account, "tun")
    run = f"/run/user/{LiveRootless.parse(host).uid}"
    said = machine.script(
        SCRIPTS / "inspect-account.sh", account=account, XDG_RUNTIME_DIR=run, DOCKER_HOST=""
    )
    return LiveRootless.parse(host + said)


def without_range(machine: PrivateMachine, account: str) -> LiveRootless:
    """An account that got no subordinate ids when it was made, as in OS Login."""
    machine.script(SCRIPTS / "account.sh", "create", account)
    machine.output("sed", "-i", f"/^{account}:/d", "/etc/subuid", "/etc/subgid")
    return looked_at(machine, account)


def with_range(machine: PrivateMachine, account: str) -> LiveRootless:
    """An account that has what `up` gives it."""
    first = next_range(without_range(machine, account))
    machine.script(SCRIPTS / "account.sh", "ids", account, str(first), str(LEAST_IDS))
    return looked_at(machine, account)


def with_the_systems_range(machine: PrivateMachine, account: str) -> int:
    """The uid of an account that has the range which useradd gives; quicker, where it is not the point."""
    machine.script(SCRIPTS / "account.sh", "create", account)
    return int(machine.output("id", "-u", account))


def owners(machine: PrivateMachine, *paths: str) -> list[tuple[int, int]]:
    """User and group of files, outside."""
    lines = machine.output("stat", "-c", "%u %g", *paths).splitlines()
    return [(int(user), int(group)) for user, group in (line.split() for line in lines)]


def test_an_account_of_ours_is_root_in_its_namespace_and_itself_outside(
    machine: PrivateMachine,
) -> None:
    live = with_range(machine, "alice")
    assert (live.local, live.home, live.namespaces) == (True, "/home/alice", "")
    assert live.rootlesskit == "/usr/bin/rootlesskit"
    (first, count), uid = live.subuid[0], live.uid
    assert (live.subgid, count) == (live.subuid, LEAST_IDS)
    make = "cd; id -u; cat /proc/self/uid_map; touch own other last; chown 33:44 other; chown $0:$0 last"
    said = machine.output("rootlesskit", "sh", "-c", make, str(count), account="alice")
    words = said.split()
    assert words == ["0", "0", str(uid), "1", "1", str(first), str(count)]
    files = [f"/home/alice/{name}" for name in ("own", "other", "last")]
    last = first + count - 1
    assert owners(machine, *files) == [(uid, uid), (first + 32, first + 43), (last, last)]


def test_ids_come_after_everybody_elses_and_belong_to_nobody_else(machine: PrivateMachine) -> None:
    # A range of an account that only a directory knows; the highest.
    for file in ("/etc/subuid", "/etc/subgid"):
        machine.output("sh", "-c", f"echo somebody:3000000:65536 >>{file}")
    before = without_range(machine, "bob")
    assert (before.subuid, before.subgid) == ((), ())
    assert (3_000_000, 65_536) in before.taken
    first = next_range(before)
    assert first == 3_065_536
    machine.script(SCRIPTS / "account.sh", "ids", "bob", str(first), str(LEAST_IDS))
    after = looked_at(machine, "bob")
    assert after.subuid == after.subgid == ((first, LEAST_IDS),)
    assert machine.output("rootlesskit", "id", "-u", account="bob") == "0\n"
    # The next account does not get the same.
    assert with_range(machine, "carol").subuid == ((first + LEAST_IDS, LEAST_IDS),)


@pytest.mark.parametrize(
    ("account", "said"),
    [("erin", "No subuid ranges found"), ("frank", "newuidmap")],
    ids=["without-a-range", "without-newuidmap"],
)
def test_the_inspection_says_why_there_is_no_namespace(
    machine: PrivateMachine, account: str, said: str
) -> None:
    if account == "erin":
        live = without_range(machine, account)
    else:
        with_the_systems_range(machine, account)
        machine.output("mv", "/usr/bin/newuidmap", "/usr/bin/away")
        live = looked_at(machine, account)
        machine.output("mv", "/usr/bin/away", "/usr/bin/newuidmap")
    assert said in live.namespaces
    known = known_errors.explain("rootless", live.namespaces)
    assert known is not None
    assert known.code == "rootless.subordinate-ids"


def test_slirp4netns_gives_the_network_that_our_unit_asks_for(machine: PrivateMachine) -> None:
    with_the_systems_range(machine, "grace")
    asked = dict(
        re.findall(r"ROOTLESSKIT_(NET|MTU)=(\S+)", scripts.read("rootless/docker.service.d.conf"))
    )
    shows = "cat /sys/class/net/tap0/mtu /etc/resolv.conf; cat /proc/net/dev"
    # The rest is what dockerd-rootless.sh adds by itself.
    said = machine.output(
        *("rootlesskit", f"--net={asked['NET']}", f"--mtu={asked['MTU']}"),
        *("--disable-host-loopback", "--port-driver=builtin", "--copy-up=/etc", "--copy-up=/run"),
        # A child that has ended before rootlesskit met its port driver makes it fail; its socket comes after.
        *(
            "sh",
            "-c",
            f"{shows}; until [ -S $ROOTLESSKIT_STATE_DIR/api.sock ]; do sleep 0.02; done",
        ),
        account="grace",
    )
    assert said.split()[0] == asked["MTU"] == "65520"
    assert "nameserver 10.0.2.3" in said
    devices = {line.split(":")[0].strip() for line in said.splitlines() if ":" in line}
    # Neither a device of the machine nor one that leads there by itself.
    assert {"lo", "tap0"} == {name for name in devices if re.fullmatch(r"lo|tap\d|e\w+", name)}


def test_data_of_other_ids_goes_with_a_removal_and_stays_without(machine: PrivateMachine) -> None:
    uid = with_the_systems_range(machine, "heidi")
    data = "/home/heidi/.local/share/docker"
    lay = 'mkdir -p "$0" && cd "$0" && mkdir -m 0700 layer && touch layer/x && chown -R 33 layer'
    machine.output("rootlesskit", "sh", "-c", lay, data, account="heidi")
    engine, environment = SCRIPTS / "engine.sh", {"XDG_RUNTIME_DIR": f"/run/user/{uid}"}
    # The account itself may not: these files are of another id.
    assert machine.run("rm", "-rf", data, account="heidi").returncode != 0
    machine.script(engine, "remove", "keep", account="heidi", **environment)
    machine.output("test", "-e", f"{data}/layer/x")
    machine.script(engine, "remove", "remove", account="heidi", **environment)
    assert machine.run("test", "-e", data).returncode == 1
