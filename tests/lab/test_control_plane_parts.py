"""The parts of the control plane that need no process: keys, ports, command lines, logs."""

from __future__ import annotations

import datetime
import errno
import json
import os
import re
import socket
import threading
from pathlib import Path

import pytest
from cryptography import x509

from lab.control_plane import (
    ControlPlaneError,
    lifecycle,
    pki,
    ports,
    processes,
    start,
    status,
    stop,
)
from lab.control_plane.commands import PORT_NAMES, PROCESSES, command_lines
from lab.control_plane.files import exclusive
from lab.control_plane.health import wait_until
from lab.control_plane.layout import Layout
from lab.control_plane.objects import stand_ins
from lab.control_plane.processes import last_words
from lab.files import write_atomic

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
PORTS = {name: 20000 + number for number, name in enumerate(PORT_NAMES)}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout.of(tmp_path)
    made.root.mkdir()
    return made


def certificate(layout: Layout, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(layout.certificate(name).read_bytes())


# --- certificates ---------------------------------------------------------------------------


def test_certificates_are_renewed_before_they_expire_with_the_authority_kept(
    layout: Layout,
) -> None:
    pki.ensure(layout, NOW)
    authority = layout.certificate("ca").read_bytes()
    later = NOW + datetime.timedelta(days=680)
    assert set(pki.ensure(layout, later)) == {"serving", *(client.name for client in pki.CLIENTS)}
    assert layout.certificate("ca").read_bytes() == authority
    assert certificate(layout, "admin").not_valid_after_utc > later + datetime.timedelta(days=365)


def test_an_expiring_authority_renews_everything_it_signed(layout: Layout) -> None:
    pki.ensure(layout, NOW)
    renewed = pki.ensure(layout, NOW + datetime.timedelta(days=3640))
    assert {"ca", "serving", "admin", "kubelet"} <= set(renewed)
    certificate(layout, "admin").verify_directly_issued_by(certificate(layout, "ca"))


def test_a_damaged_key_is_replaced(layout: Layout) -> None:
    pki.ensure(layout, NOW)
    layout.key("kubelet").write_text("not a key")
    assert pki.ensure(layout, NOW) == ["kubelet"]


def test_the_service_account_key_outlives_certificates(layout: Layout) -> None:
    pki.ensure(layout, NOW)
    key = layout.key("service-account").read_bytes()
    pki.ensure(layout, NOW + datetime.timedelta(days=3640))
    assert layout.key("service-account").read_bytes() == key


def test_no_private_key_is_readable_for_others(layout: Layout) -> None:
    pki.ensure(layout, NOW)
    assert {path.stat().st_mode & 0o777 for path in layout.pki.glob("*.key")} == {0o600}


def test_the_serving_certificate_is_good_for_every_name_of_the_api_server(layout: Layout) -> None:
    pki.ensure(layout, NOW)
    names = certificate(layout, "serving").extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "kubernetes.default.svc" in names.value.get_values_for_type(x509.DNSName)
    addresses = map(str, names.value.get_values_for_type(x509.IPAddress))
    assert set(addresses) == {"127.0.0.1", "10.96.0.1"}


# --- ports ----------------------------------------------------------------------------------


def test_two_labs_never_get_the_same_port_even_when_none_of_them_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_FIRST", 20000)
    monkeypatch.setattr(ports, "_LAST", 20011)
    monkeypatch.setattr(ports, "_is_unused", lambda _: True)
    registry = tmp_path / "all.json"
    one = ports.reserve(tmp_path / "one" / "ports.json", PORT_NAMES, registry)
    two = ports.reserve(tmp_path / "two" / "ports.json", PORT_NAMES, registry)
    assert not set(one.values()) & set(two.values())
    with pytest.raises(ControlPlaneError, match="no free port between 20000 and 20011"):
        ports.reserve(tmp_path / "three" / "ports.json", PORT_NAMES, registry)


def test_the_ports_of_a_lab_that_is_gone_are_free_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "_FIRST", 20000)
    monkeypatch.setattr(ports, "_LAST", 20005)
    monkeypatch.setattr(ports, "_is_unused", lambda _: True)
    registry = tmp_path / "all.json"
    ports.reserve(tmp_path / "one" / "ports.json", PORT_NAMES, registry)
    (tmp_path / "one" / "ports.json").unlink()
    assert ports.reserve(tmp_path / "two" / "ports.json", PORT_NAMES, registry)


def test_a_port_that_somebody_listens_on_is_not_free_and_its_holder_is_named() -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert ports.is_free(port), "it is only held, so that nobody else listens there meanwhile"
        server.listen()
        assert not ports.is_free(port)
        assert "(pid " in ports.holder_of(port)


def test_a_damaged_port_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "ports.json").write_text("{")
    with pytest.raises(ControlPlaneError, match=r"ports\.json is damaged .*remove it"):
        ports.reserve(tmp_path / "ports.json", PORT_NAMES, tmp_path / "all.json")


# --- files ----------------------------------------------------------------------------------


def test_a_second_command_on_the_same_lab_says_who_holds_it(tmp_path: Path) -> None:
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive(tmp_path / ".lock", wait_seconds=0, busy="busy"):
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    with (
        pytest.raises(ControlPlaneError, match=r"busy \(process \d+\)"),
        exclusive(tmp_path / ".lock", wait_seconds=0.1, busy="busy"),
    ):
        pytest.fail("two hold the lock")
    release.set()
    thread.join()


def test_a_file_with_a_wrong_mode_is_put_right(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"secret")
    write_atomic(path, b"secret", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600


# --- command lines, objects -----------------------------------------------------------------


def test_every_process_listens_on_loopback_only_and_points_into_the_lab(layout: Layout) -> None:
    lines = command_lines(layout, PORTS, {name: Path("/bin") / name for name in PROCESSES})
    for name, line in lines.items():
        assert any(f"{layout.root}/" in argument for argument in line), name
        flags = dict(argument.partition("=")[::2] for argument in line if argument.startswith("--"))
        listens = {k: v for k, v in flags.items() if re.search("listen-.*urls|address$", k)}
        assert listens, f"{name} listens everywhere unless it is told where"
        for flag, value in listens.items():
            assert re.match(r"(https://)?127\.0\.0\.1(:|$)|InternalIP$", value), (name, flag, value)


def test_no_secret_is_on_a_command_line(layout: Layout) -> None:
    pki.ensure(layout)
    lines = command_lines(layout, PORTS, {name: Path("/bin") / name for name in PROCESSES})
    arguments = " ".join(argument for line in lines.values() for argument in line)
    assert "PRIVATE KEY" not in arguments
    assert "token" not in arguments


def test_every_stand_in_is_labelled_as_one() -> None:
    for manifest in stand_ins():
        assert manifest["metadata"]["labels"] == {"gpu-clusters.dev/stand-in": "true"}


# --- logs -----------------------------------------------------------------------------------


def test_the_last_errors_of_a_log_are_told_not_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "kube-apiserver.log"
    log.write_text(
        "I1121 10:00:00.0 1 server.go:1] Version\n"
        'E1121 10:00:01.0 1 run.go:72] "command failed" err="open x: no such file"\n'
        "I1121 10:00:02.0 1 server.go:9] bye\n"
    )
    assert last_words(log) == (
        'E1121 10:00:01.0 1 run.go:72] "command failed" err="open x: no such file"'
    )


def test_a_log_without_errors_gives_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "any.log"
    log.write_text("one\ntwo\nthree\nfour\n")
    assert last_words(log) == "two / three / four"
    log.write_text("")
    assert last_words(log) == "its log is empty"
    assert last_words(tmp_path / "none.log") == "it wrote no log"


def test_json_logs_are_understood(tmp_path: Path) -> None:
    log = tmp_path / "etcd.log"
    lines = [{"level": "warn", "msg": "a"}, {"level": "fatal", "msg": "b"}]
    log.write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines))
    assert last_words(log) == '{"level":"fatal","msg":"b"}'


# --- a start that fails ---------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that stand for those of the control plane; all wait for ever."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PROCESSES:
        (folder / name).write_text("#!/bin/sh\nexec sleep 600\n")
        (folder / name).chmod(0o755)
    found = {name: folder / name for name in PROCESSES}
    monkeypatch.setattr(lifecycle.tools, "ensure", lambda *_: found)
    return folder


def test_a_process_that_finds_the_disk_full_says_so(tmp_path: Path, programs: Path) -> None:
    (programs / "etcd").write_text("#!/bin/sh\necho 'panic: no space left on device'\nexit 2\n")
    with pytest.raises(ControlPlaneError, match=r"no space left on device .*: free some space"):
        start(tmp_path / "lab")


def test_a_disk_that_is_full_before_anything_starts_is_named(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/lab/pki/ca.key")

    monkeypatch.setattr(pki, "ensure", fail)
    with pytest.raises(ControlPlaneError, match=r"No space left on device \(/lab/pki/ca\.key\)"):
        start(tmp_path / "lab")


def test_an_interrupted_start_stops_what_it_started(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[processes.Running] = []

    def interrupt(
        _ready: object,
        _what: object,
        running: dict[str, processes.Running],
        *_: object,
        **__: object,
    ) -> None:
        started.extend(running.values())
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "wait_until", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path / "lab")
    assert [running.name for running in started] == ["etcd"]
    assert not any(processes.is_alive(running) for running in started)


def test_what_does_not_get_ready_in_time_is_named(tmp_path: Path, programs: Path) -> None:
    with pytest.raises(ControlPlaneError, match=r"the moon was not reached within 0 s; the logs"):
        wait_until(lambda: False, "the moon", {}, Layout.of(tmp_path), seconds=0)


# --- without any process --------------------------------------------------------------------


def test_the_status_of_a_lab_that_never_ran_shows_every_process_as_not_running(
    tmp_path: Path,
) -> None:
    found = status(tmp_path)
    assert [process.name for process in found] == list(PROCESSES)
    assert not any(process.running for process in found)


def test_stopping_a_lab_that_never_ran_does_nothing(tmp_path: Path) -> None:
    stop(tmp_path / "lab")
    assert not (tmp_path / "lab").exists()


def test_a_lab_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a file")
    with pytest.raises(ControlPlaneError, match=r"lab.control_plane cannot be started: .*lab"):
        start(tmp_path / "lab")
