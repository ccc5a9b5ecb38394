"""Files and CDI specs on a host: compared first, then changed, never somebody else's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuclusters.domain import cdi, reconcile
from gpuclusters.domain.cdi import CdiSpecInputs
from gpuclusters.domain.host_file import HostFileSpec, check_path, sha256_of
from gpuclusters.domain.ports import LiveFile, PciFunction
from gpuclusters.domain.refusals import RefusalError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0H0bu9Qxk2c3pDfkz8kRtRkHkYkB1q0h3p2v0nF3oA"
CONNECTION = {"host": "hgx-01", "address": "192.0.2.1", "host_key": KEY}
PATH, CDI_PATH, GPU = "/etc/x.conf", "/etc/cdi/pgpu.json", "0000:0f:00.0"


@dataclass
class Host:
    """A host's files and PCI functions in memory."""

    files: dict[str, LiveFile] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=lambda: {GPU: "27"})
    writes: int = 0
    notes: list[str] = field(default_factory=list)
    place: str = "hgx-01 (192.0.2.1:22)"

    def put(self, path: str, text: str, mode: str = "0644", owner: str = "root:root") -> None:
        content = text.encode()
        self.files[path] = LiveFile(content, mode, owner, sha256_of(content))

    def text(self, path: str) -> str:
        return self.files[path].content.decode()

    def read(self, path: str) -> LiveFile | None:
        return self.files.get(path)

    def read_folders(self, folders: Sequence[str], suffixes: Sequence[str]) -> Mapping[str, bytes]:
        return {
            p: f.content
            for p, f in self.files.items()
            if p.rsplit("/", 1)[0] in folders and p.endswith(tuple(suffixes))
        }

    def write(self, path: str, content: bytes, *, mode: str, owner: str) -> str:
        self.writes += 1
        self.put(path, content.decode(), mode, owner)
        return sha256_of(content)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        return {
            a: PciFunction(a, a in self.groups, self.groups.get(a), "vfio-pci") for a in addresses
        }

    def note(self, line: str) -> None:
        self.notes.append(line)


def file(**changes: Any) -> HostFileSpec:
    return HostFileSpec.model_validate(
        {"connection": CONNECTION, "path": PATH, "content": "a\n"} | changes
    )


def spec(**changes: Any) -> CdiSpecInputs:
    devices = [{"name": "1", "pci_address": GPU}]
    given = {"connection": CONNECTION, "path": CDI_PATH, "kind": "nvidia.com/pgpu"}
    return CdiSpecInputs.model_validate(given | {"devices": devices} | changes)


def test_an_absent_file_is_written_and_an_equal_one_left_alone() -> None:
    host = Host()
    digest = reconcile.ensure_file(file(), host, host, written=None)
    assert host.text(PATH) == "a\n"
    assert reconcile.ensure_file(file(), host, host, written=None) == digest
    assert host.writes == 1


def test_equal_content_with_another_mode_is_ours_and_put_right() -> None:
    host = Host()
    host.put(PATH, "a\n", mode="0600", owner="daemon:daemon")
    reconcile.ensure_file(file(), host, host, written=None)
    assert (host.files[PATH].mode, host.files[PATH].owner) == ("0644", "root:root")


def test_a_foreign_file_is_refused() -> None:
    host = Host()
    host.put(PATH, "theirs\n")
    with pytest.raises(RefusalError, match="a different file is there already"):
        reconcile.ensure_file(file(), host, host, written=None)
    assert host.text(PATH) == "theirs\n"


def test_drift_is_named_and_put_back_but_our_own_old_content_is_no_drift() -> None:
    host = Host()
    first = reconcile.ensure_file(file(), host, host, written=None)
    reconcile.ensure_file(file(content="b\n"), host, host, written=first)
    assert host.notes == []
    host.put(PATH, "by hand\n")
    reconcile.ensure_file(file(content="b\n"), host, host, written=first)
    assert host.text(PATH) == "b\n"
    assert "was changed on the host since" in host.notes[0]


def test_only_what_was_written_here_is_removed() -> None:
    host = Host()
    digest = reconcile.ensure_file(file(), host, host, written=None)
    host.put(PATH, "by hand\n")
    with pytest.raises(RefusalError, match="is not removed"):
        reconcile.remove_file(PATH, host, written=digest)
    host.put(PATH, "a\n")
    reconcile.remove_file(PATH, host, written=digest)
    reconcile.remove_file(PATH, host, written=digest)
    assert host.files == {}


def test_a_cdi_file_is_written_once() -> None:
    host = Host()
    made = reconcile.ensure_cdi(spec(), host, host, host, written=None)
    assert host.text(CDI_PATH) == made.content
    assert reconcile.ensure_cdi(spec(), host, host, host, written=None) == made
    assert host.writes == 1


def test_refusals_of_a_cdi_spec_come_before_the_first_write() -> None:
    for path, text, adopt in (
        (CDI_PATH, '{"kind": "nvidia.com/pgpu"}', False),
        ("/var/run/cdi/a.json", '{"kind": "nvidia.com/pgpu", "devices": [{"name": "1"}]}', True),
    ):
        host = Host()
        host.put(path, text)
        with pytest.raises(RefusalError):
            reconcile.ensure_cdi(spec(adopt=adopt), host, host, host, written=None)
        assert host.writes == 0
    absent = Host(groups={})
    with pytest.raises(RefusalError, match="no PCI function"):
        reconcile.ensure_cdi(spec(), absent, absent, absent, written=None)
    assert absent.writes == 0


def test_drift_of_a_cdi_file_is_said_in_words() -> None:
    host = Host()
    reconcile.ensure_cdi(spec(), host, host, host, written=None)
    good = host.files[CDI_PATH]
    assert reconcile.cdi_drift(spec(), good, host) == []

    host.groups[GPU] = "28"
    assert "VFIO nodes" in reconcile.cdi_drift(spec(), good, host)[0]
    host.groups.clear()
    assert "no PCI function" in reconcile.cdi_drift(spec(), good, host)[0]
    host.groups[GPU] = "27"
    for text, mode, said in (
        ("{}", "0644", "not ours"),
        (good.content.decode().replace('"1"', '"2"'), "0644", "kind or devices"),
        (good.content.decode(), "0600", "mode and owner"),
    ):
        host.put(CDI_PATH, text, mode=mode)
        assert said in reconcile.cdi_drift(spec(), host.files[CDI_PATH], host)[0]


def test_a_cdi_file_without_our_mark_is_not_removed() -> None:
    host = Host()
    reconcile.ensure_cdi(spec(), host, host, host, written=None)
    assert cdi.is_ours(host.files[CDI_PATH].content)
    reconcile.remove_cdi(CDI_PATH, host)
    reconcile.remove_cdi(CDI_PATH, host)
    host.put(CDI_PATH, "{}")
    with pytest.raises(RefusalError, match="is not removed"):
        reconcile.remove_cdi(CDI_PATH, host)


@pytest.mark.parametrize("path", ["a", "./a", "/a/../b", "/a/./b", "/a/", "//a", "/a\n", "/", ""])
def test_a_path_that_is_not_where_it_says_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        check_path(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "rw-r--r--"),
        ("mode", "0888"),
        ("owner", "0:0"),
        ("owner", "root"),
        ("content", "a\0b"),
        ("content", "x" * (512 * 1024 + 1)),
    ],
)
def test_inputs_of_a_file_that_cannot_work_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name if name != "owner" else "user and group"):
        file(**{name: value})


def test_a_mode_may_have_three_digits() -> None:
    assert file(mode="640").mode == "0640"
