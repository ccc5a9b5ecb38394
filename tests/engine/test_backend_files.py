"""The file backend: Pulumi's layout, locks, and states that survive whatever happens."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from engine.backend import checkpoints, history, locks
from engine.backend.address import backend_folder, parse
from engine.backend.filebackend import FileBackend
from engine.backend.layout import StackReference, parse_reference
from engine.backend.store import CheckpointStore
from engine.secrets import SecretsManager, new_manager
from engine.state import ResourceState, Snapshot
from engine.usererror import UserError
from engine.values import Secret
from tests.fixtures.tables import beside

pytestmark = pytest.mark.usefixtures("quick")

ROWS = beside(__file__, "rows.yaml")
DEV = StackReference("refs", "dev")
URN = "urn:pulumi:dev::refs::{}::{}"


@pytest.fixture
def backend(tmp_path: Path) -> FileBackend:
    made = FileBackend(tmp_path)
    made.prepare()
    return made


@functools.cache
def manager(number: int = 0) -> SecretsManager:
    """Managers of different numbers have different salts."""
    return new_manager("p")


def store(backend: FileBackend, using: SecretsManager | None = None) -> CheckpointStore:
    def open_with(salt: str) -> SecretsManager:
        return SecretsManager(salt, lambda: "p")

    return CheckpointStore(backend.bucket, DEV, using or manager(), open_with)


def resource(name: str, **more: object) -> ResourceState:
    return ResourceState(URN.format("a:b:C", name), "a:b:C", custom=True, id=name, **more)


def test_a_backend_is_that_of_the_environment_of_the_project_or_of_the_last_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"PULUMI_HOME": str(tmp_path)}
    with pytest.raises(UserError, match="PULUMI_BACKEND_URL"):
        backend_folder(None, home)
    (tmp_path / "credentials.json").write_text(json.dumps({"current": f"file://{tmp_path}"}))
    assert backend_folder(None, home) == tmp_path
    variable = {**home, "PULUMI_BACKEND_URL": f"file://{tmp_path}?no_tmp_dir=true"}
    assert backend_folder("file:///elsewhere", variable) == tmp_path
    (tmp_path / "state").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("file://state") == parse("file://./state") == tmp_path / "state"
    assert parse("file://~") == tmp_path
    assert parse("file://~/state") == tmp_path / "state"


@pytest.mark.parametrize(("url", "what"), ROWS["backends"])
def test_other_backends_are_refused_by_name(url: str, what: str) -> None:
    with pytest.raises(UserError, match=what) as caught:
        parse(url)
    assert url in str(caught.value)


def test_stacks_are_named_with_or_without_their_project() -> None:
    assert parse_reference("dev", "refs") == DEV
    assert parse_reference("organization/dev", "refs") == DEV
    assert parse_reference("organization/refs/dev", None) == DEV


@pytest.mark.parametrize("name", ["", "a b", "other/refs/dev", "a/b/c/d", "organization//dev", "ä"])
def test_bad_stack_names_are_refused(name: str) -> None:
    with pytest.raises(UserError):
        parse_reference(name, "refs")


@pytest.mark.parametrize("text", ["version: 2\n", "version: 0\n", "other: 1\n", "[", ""])
def test_another_layout_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / ".pulumi").mkdir()
    (tmp_path / ".pulumi/meta.yaml").write_text(text)
    with pytest.raises(UserError, match=r"meta\.yaml"):
        FileBackend(tmp_path).prepare()


def test_every_file_has_its_attributes_beside_it(backend: FileBackend) -> None:
    assert backend.bucket.path(".pulumi/meta.yaml").read_text() == "version: 1\n"
    backend.create(DEV, checkpoints.empty_deployment(manager()))
    content = backend.bucket.read(DEV.checkpoint)
    attributes = json.loads(backend.bucket.read(f"{DEV.checkpoint}.attrs"))
    assert base64.b64decode(attributes["md5"]) == hashlib.md5(content).digest()
    assert attributes["user.content_type"] == "text/plain; charset=utf-8"
    assert set(attributes) == {
        "user.cache_control", "user.content_disposition", "user.content_encoding",
        "user.content_language", "user.content_type", "user.metadata", "md5",
    }  # fmt: skip


def test_stacks_are_listed_by_project(backend: FileBackend) -> None:
    for name in ("organization/a/x", "organization/a/y", "organization/b/x"):
        backend.create(parse_reference(name, None), {})
    assert [str(s) for s in backend.stacks()] == [
        "organization/a/x", "organization/a/y", "organization/b/x",
    ]  # fmt: skip
    assert [s.name for s in backend.stacks("b")] == ["x"]


def test_a_compressed_state_is_refused_and_not_taken_for_a_missing_one(
    backend: FileBackend,
) -> None:
    backend.bucket.write(f"{DEV.checkpoint}.gz", b"")
    with pytest.raises(UserError, match="compressed"):
        backend.require(DEV)


def test_an_edit_of_a_state_that_has_changed_meanwhile_is_refused(backend: FileBackend) -> None:
    store(backend).save(Snapshot((resource("one"),)))
    seen = backend.checkpoint(DEV)
    store(backend).save(Snapshot((resource("one"), resource("two"))))
    before = backend.bucket.read(DEV.checkpoint)
    with pytest.raises(UserError, match="changed by somebody else meanwhile"):
        backend.replace(DEV, {}, seen)
    assert backend.bucket.read(DEV.checkpoint) == before
    backend.replace(DEV, {"metadata": {}}, backend.checkpoint(DEV))
    assert backend.checkpoint(DEV).resources == []


def test_a_new_salt_leaves_nothing_encrypted_under_the_old_one(backend: FileBackend) -> None:
    store(backend).save(Snapshot((resource("one", inputs={"a": Secret("s")}),)))
    other = manager(1)
    rotated = store(backend, other)
    rotated.save(rotated.load())
    document = json.loads(backend.bucket.read(DEV.checkpoint))["checkpoint"]["latest"]
    assert document["secrets_providers"] == other.state()
    ciphertext = document["resources"][0]["inputs"]["a"]["ciphertext"]
    assert other.decrypt(ciphertext) == '"s"'


ROOT = URN.format("pulumi:pulumi:Stack", "refs-dev")
ONE = URN.format("a:b:C", "one")
TEXT = Path(__file__).with_name("states.yaml").read_text()
BROKEN = yaml.safe_load(TEXT.replace("ROOT", ROOT).replace("ONE", ONE))


def checkpoint(latest: dict) -> bytes:
    default = {"custom": True, "type": "a:b:C"}
    resources = [default | r if isinstance(r, dict) else r for r in latest.get("resources", [])]
    document = {"stack": "x", "latest": {**latest, "resources": resources}}
    return json.dumps({"version": 3, "checkpoint": document}).encode()


@pytest.mark.parametrize(
    ("what", "content"),
    [
        *((what, checkpoint(latest)) for what, latest in BROKEN),
        *(
            (
                f"version {v!r}.*use the Pulumi CLI",
                b'{"version":%s,"checkpoint":{}}' % json.dumps(v).encode(),
            )
            for v in (2, 5, "3", None, True)
        ),
        ("'features' that are not a list", b'{"version":3,"features":"x","checkpoint":{}}'),
        ("no 'checkpoint'", b"[]"),
        ("not valid JSON", b"[" * 100_000),
        ("not valid JSON", b'{"version":3,"checkpoint":{"latest":"\xff"}}'),
        ("is empty", bytes(4096)),
    ],
)
def test_a_broken_state_is_named_with_its_first_fault_and_left_alone(
    backend: FileBackend, what: str, content: bytes
) -> None:
    backend.bucket.write(DEV.checkpoint, content)
    with pytest.raises(UserError, match=what) as caught:
        store(backend).load()
    assert "\n" not in str(caught.value)
    assert str(backend.bucket.path(DEV.checkpoint)) in str(caught.value)
    assert caught.value.exit_code == 1
    assert backend.bucket.read(DEV.checkpoint) == content


def test_a_state_with_secrets_of_others_is_refused(backend: FileBackend) -> None:
    backend.bucket.write(DEV.checkpoint, checkpoint({"secrets_providers": {"type": "service"}}))
    with pytest.raises(UserError, match="passphrase secrets only"):
        store(backend).load()


def test_an_empty_state_says_where_the_one_before_is(backend: FileBackend) -> None:
    kept = store(backend)
    kept.save(Snapshot((resource("one"),)))
    kept.save(Snapshot())
    backend.bucket.path(DEV.checkpoint).write_bytes(b"")
    with pytest.raises(UserError, match=r"is empty.*Put an older state.*dev\.json\.bak") as caught:
        kept.load()
    backup = backend.bucket.path(f"{DEV.checkpoint}.bak")
    assert str(backup) in str(caught.value)
    backend.bucket.path(DEV.checkpoint).write_bytes(backup.read_bytes())
    assert [r.name for r in kept.load().resources] == ["one"]


def test_a_damaged_stack_can_be_removed_by_force(backend: FileBackend) -> None:
    backend.bucket.write(DEV.checkpoint, b"{")
    with pytest.raises(UserError, match="not valid JSON"):
        backend.remove(DEV, force=False, backups=False)
    backend.remove(DEV, force=True, backups=False)
    assert not backend.exists(DEV)


@pytest.fixture
def powerless() -> Iterator[FileBackend]:
    """A backend whose files are not those of this process's user, who is nobody in particular."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    made = FileBackend(folder)
    made.prepare()
    store(made).save(Snapshot((resource("one"),)))
    path = made.bucket.path(DEV.checkpoint)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    else:
        path.chmod(0)
        path.parent.chmod(0o500)
    yield made
    if root:
        os.seteuid(0)
    path.parent.chmod(0o700)
    shutil.rmtree(folder)


def test_a_state_that_must_not_be_read_or_written_is_named(powerless: FileBackend) -> None:
    path = powerless.bucket.path(DEV.checkpoint)
    with pytest.raises(UserError, match="permission denied; check who owns the file") as caught:
        powerless.checkpoint(DEV)
    assert str(path) in str(caught.value)
    with pytest.raises(UserError, match="permission denied; check who owns the file") as caught:
        store(powerless).save(Snapshot((resource("two"),)))
    assert str(path.parent) in str(caught.value)


def test_a_lock_says_who_holds_it_and_goes_afterwards(backend: FileBackend) -> None:
    with locks.locked(backend.bucket, DEV):
        (held,) = locks.held(backend.bucket, DEV)
        assert (held.pid, held.hostname) == (os.getpid(), socket.gethostname())
        assert not held.abandoned
        with (
            pytest.raises(UserError, match=rf"(?s)locked by 1 lock.*pid {os.getpid()}") as caught,
            locks.locked(backend.bucket, DEV),
        ):
            pytest.fail("two at a time")
        assert "cancel" in str(caught.value)
        assert "\n" in str(caught.value)
    assert locks.held(backend.bucket, DEV) == []


def test_the_lock_of_a_process_that_is_gone_is_called_that(backend: FileBackend) -> None:
    # No process has the largest number there can be.
    lock = {"pid": 2**22 + 1, "username": "u", "hostname": socket.gethostname(), "timestamp": "t"}
    backend.bucket.write(f"{DEV.locks}/x.json", json.dumps(lock).encode())
    with pytest.raises(UserError, match="that process is gone"), locks.locked(backend.bucket, DEV):
        pytest.fail("two at a time")
    assert locks.release_all(backend.bucket, DEV) == 1


def test_a_damaged_lock_is_a_lock(backend: FileBackend) -> None:
    for content in (b"{", b"[]", b'{"pid":"x"}', b""):
        backend.bucket.write(f"{DEV.locks}/x.json", content)
        with pytest.raises(UserError, match="unknown@unknown"), locks.locked(backend.bucket, DEV):
            pytest.fail("two at a time")


def test_of_many_that_start_together_at_most_one_goes_on(backend: FileBackend) -> None:
    inside, most, gate = [], [], threading.Barrier(6)

    def attempt() -> None:
        gate.wait()
        try:
            with locks.locked(backend.bucket, DEV):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
        except UserError:
            pass

    threads = [threading.Thread(target=attempt) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most, default=0) <= 1
    assert locks.held(backend.bucket, DEV) == []


def test_a_copy_of_the_state_does_not_change_with_it(backend: FileBackend) -> None:
    kept = store(backend)
    kept.save(Snapshot((resource("one"),)))
    history.back_up(backend.bucket, DEV)
    (backup,) = backend.bucket.keys(DEV.backups)
    before = backend.bucket.read(backup)
    kept.save(Snapshot())
    kept.save(Snapshot())
    assert backend.bucket.read(backup) == before


def test_a_damaged_record_is_named(backend: FileBackend) -> None:
    backend.bucket.write(f"{DEV.history}/dev-1.history.json", b"{")
    with pytest.raises(UserError, match=r"dev-1\.history\.json is damaged"):
        history.read(backend.bucket, DEV)
