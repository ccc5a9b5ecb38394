"""The parts of the control plane that need no process: keys, ports, command lines, logs."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from lab.control_plane import (
    ControlPlaneError,
    lifecycle,
    pki,
    ports,
    processes,
    start,
)
from lab.control_plane.commands import PORT_NAMES, PROCESSES, command_lines
from lab.control_plane.files import exclusive
from lab.control_plane.layout import Layout

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
PORTS = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path)
    made.root.mkdir()
    return made


def certificate(layout: Layout, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(layout.certificate(name).read_bytes())


def test_certificates_are_renewed_before_they_expire_with_keys_and_authority_kept(
    layout: Layout,
) -> None:
    pki.ensure(layout, NOW)
    assert {path.stat().st_mode & 0o777 for path in layout.pki.glob("*.key")} == {0o600}
    authority = layout.certificate("ca").read_bytes()
    account_key = layout.key("service-account").read_bytes()
    layout.key("kubelet").write_text("not a key")
    assert pki.ensure(layout, NOW) == ["kubelet"]
    later = NOW + datetime.timedelta(days=680)
    assert set(pki.ensure(layout, later)) == {"serving", *(client.name for client in pki.CLIENTS)}
    assert layout.certificate("ca").read_bytes() == authority
    assert certificate(layout, "admin").not_valid_after_utc > later + datetime.timedelta(days=365)
    # An authority that expires renews everything it signed, and not what it did not.
    renewed = pki.ensure(layout, NOW + datetime.timedelta(days=3640))
    assert {"ca", "serving", "admin", "kubelet"} <= set(renewed)
    certificate(layout, "admin").verify_directly_issued_by(certificate(layout, "ca"))
    assert layout.key("service-account").read_bytes() == account_key


def test_two_labs_never_get_the_same_port_until_one_of_them_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_FIRST", 20000)
    monkeypatch.setattr(ports, "_LAST", 20011)
    monkeypatch.setattr(ports, "_is_unused", lambda _: True)

    def reserve(name: str) -> Mapping[str, int]:
        return ports.reserve(tmp_path / name / "ports.json", PORT_NAMES, tmp_path / "all.json")

    assert not set(reserve("one").values()) & set(reserve("two").values())
    with pytest.raises(ControlPlaneError, match="no free port between 20000 and 20011"):
        reserve("three")
    (tmp_path / "one" / "ports.json").unlink()
    assert reserve("three")
    (tmp_path / "two" / "ports.json").write_text("{")
    with pytest.raises(ControlPlaneError, match=r"ports\.json is damaged .*remove it"):
        reserve("two")


def test_a_second_command_on_the_same_lab_says_who_holds_it(tmp_path: Path) -> None:
    def twice(wait_seconds: float) -> None:
        with exclusive(tmp_path / ".lock", wait_seconds=wait_seconds, busy="busy"):
            pytest.fail("two hold the lock")

    with (
        exclusive(tmp_path / ".lock", wait_seconds=0, busy="busy"),
        ThreadPoolExecutor(1) as others,
        pytest.raises(ControlPlaneError, match=r"busy \(process \d+\)"),
    ):
        others.submit(twice, 0.1).result(60)


def test_every_process_listens_on_loopback_only_and_points_into_the_lab_without_a_secret(
    layout: Layout,
) -> None:
    pki.ensure(layout)
    lines = command_lines(layout, PORTS, {name: Path("/bin") / name for name in PROCESSES})
    for name, line in lines.items():
        assert any(f"{layout.root}/" in argument for argument in line), name
        assert not re.search("PRIVATE KEY|token", " ".join(line))
        flags = dict(argument.partition("=")[::2] for argument in line if argument.startswith("--"))
        listens = {k: v for k, v in flags.items() if re.search("listen-.*urls|address$", k)}
        assert listens, f"{name} listens everywhere unless it is told where"
        for flag, value in listens.items():
            assert re.match(r"(https://)?127\.0\.0\.1(:|$)|InternalIP$", value), (name, flag, value)


def test_an_interrupted_start_stops_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(lifecycle.tools, "ensure", lambda *_: dict.fromkeys(PROCESSES, program))
    started: list[processes.Running] = []

    def interrupt(*given: Any, **_: object) -> None:
        started.extend(given[2].values())
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "wait_until", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "lab")
    assert [running.name for running in started] == ["etcd"]
    assert not any(processes.is_alive(running) for running in started)
