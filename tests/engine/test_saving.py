"""The state is whole on the disk before and after every step, whatever ends the run."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from pathlib import Path

import pytest

from engine import atomicfile
from engine.backend import checkpoints
from engine.keeper import Keeper
from engine.state import ResourceState, Snapshot
from engine.usererror import UserError
from engine.values import Secret
from tests.engine.diskkit import DEV, DiskStack, Moment
from tests.engine.enginekit import Thing, faults

FIRST = [
    Thing("group", component=True),
    Thing("a", parent="group"),
    Thing("b", uses=("a",)),
    Thing("c", after=("b",)),
    Thing("d"),
]
# Something of everything: kept, updated, replaced in either order, new, gone.
SECOND = [
    Thing("group", component=True),
    Thing("a", parent="group", text=Secret("very hidden ü")),  # type: ignore[arg-type]
    Thing("b", uses=("a",), key="other"),
    Thing("c", after=("b",), key="other"),
    Thing("e", uses=("c",)),
]


@pytest.fixture(autouse=True)
def no_sync(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # These tests end no machine, so nothing has to reach the disk itself.
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def stack(tmp_path: Path) -> DiskStack:
    made = DiskStack(tmp_path)
    made.memory.delete_first = {"c"}
    return made


def recorded(stack: DiskStack) -> list[Moment]:
    """The moments of an up in which much happens."""
    assert stack.up(*FIRST).ok
    stack.moments.clear()
    stack.memory.calls.clear()
    assert stack.up(*SECOND).ok
    return stack.moments


def names(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(r.name, r.id) for r in snapshot.resources}


def test_every_write_holds_all_that_was_done_and_what_is_under_way(stack: DiskStack) -> None:
    moments = recorded(stack)
    assert len(moments) > 10
    for moment in moments:
        stack.state.write_bytes(moment.state)
        loaded = stack.load()
        assert not faults(loaded)
        assert names(loaded) == names(moment.snapshot)
        assert {(op.type, op.resource.name) for op in loaded.pending_operations} == moment.pending
        assert b"very hidden" not in moment.state
    assert moments[-1].pending == set()


def test_a_run_that_changes_nothing_writes_once_at_its_end(stack: DiskStack) -> None:
    def program() -> list[Thing]:
        # A program makes new values each time, however equal.
        group = Thing("group", component=True, text=Secret("x"))  # type: ignore[arg-type]
        return [group, Thing("a", parent="group", text=Secret("y"))]  # type: ignore[arg-type]

    assert stack.up(*program()).ok
    before = checkpoints.read(stack.backend.bucket, DEV).resources
    stack.moments.clear()
    assert stack.up(*program()).ok
    assert len(stack.moments) == 1
    assert checkpoints.read(stack.backend.bucket, DEV).resources == before


def test_what_was_begun_is_on_the_disk_before_the_provider_is_asked(stack: DiskStack) -> None:
    seen: list[tuple[str, str]] = []
    create = stack.memory.create

    def asked(subject, *args, **options):  # type: ignore[no-untyped-def]
        pending = checkpoints.read(stack.backend.bucket, DEV).pending_operations
        seen.extend((op["type"], op["resource"]["urn"].split("::")[-1]) for op in pending)
        return create(subject, *args, **options)

    stack.memory.create = asked  # type: ignore[method-assign]
    assert stack.up(Thing("a"), Thing("b")).ok
    assert seen == [("creating", "a"), ("creating", "b")]


def test_a_state_takes_the_place_of_the_old_one_as_a_whole_when_it_is_on_the_disk(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stack.up(*FIRST).ok
    stack.moments.clear()
    written, synced, replace = [stack.state.read_bytes()], set[int](), Path.replace

    def move(self: Path, target: Path) -> Path:
        if target == stack.state:
            # A kill before this finds all of the old state, a loss of power after it all of the new one.
            assert stack.state.read_bytes() == written[-1]
            assert self.stat().st_ino in synced
            written.append(self.read_bytes())
        return replace(self, target)

    monkeypatch.setattr(atomicfile.os, "fsync", lambda file: synced.add(os.fstat(file).st_ino))
    monkeypatch.setattr(Path, "replace", move)
    assert stack.up(*SECOND).ok
    assert written[1:] == [moment.state for moment in stack.moments]


def test_a_run_cut_off_after_any_write_and_resumed_ends_as_if_it_had_not_been(
    tmp_path: Path,
) -> None:
    whole = DiskStack(tmp_path / "whole")
    whole.memory.delete_first = {"c"}
    moments = recorded(whole)
    wanted = {(r.urn, r.id.split("@")[0]) for r in whole.load().resources}
    for number, moment in enumerate(moments):
        stack = DiskStack(tmp_path / str(number))
        stack.memory.delete_first = {"c"}
        stack.state.write_bytes(moment.state)
        # The world is what it was at that moment.
        stack.memory.objects = {id_: {"text": "", "key": ""} for id_ in moment.objects}
        was = {(r.urn, r.id): r.inputs for r in moment.snapshot.resources if r.id}
        end = whole.load().resources
        finished = {r.name for r in end if was.get((r.urn, r.id)) == r.inputs}
        assert stack.up(*SECOND).ok
        assert {(r.urn, r.id.split("@")[0]) for r in stack.load().resources} == wanted
        made = {c.split()[1] for c in stack.memory.calls if not c.startswith("delete")}
        assert not finished & made, number


def test_what_a_killed_write_left_beside_the_state_is_no_stack(stack: DiskStack) -> None:
    assert stack.up(*FIRST).ok
    stack.state.with_name(".dev.json.x1y2z3").write_bytes(stack.state.read_bytes()[:99])
    assert stack.backend.stacks() == [DEV]
    assert set(stack.up(*FIRST).changes) == {"same"}


OPERATIONS = (
    (atomicfile.os, "fsync"),
    (atomicfile.os, "fchmod"),
    (atomicfile.os, "link"),
    (atomicfile.tempfile, "mkstemp"),
    (Path, "replace"),
    (Path, "unlink"),
)


@pytest.mark.parametrize("lasting", [True, False])
def test_whatever_the_disk_refuses_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lasting: bool
) -> None:
    first = DiskStack(tmp_path / "first")
    assert first.up(*FIRST).ok
    old, ended_well = names(first.load()), False
    for number in itertools.count():
        shutil.copytree(tmp_path / "first", tmp_path / str(number))
        stack = DiskStack(tmp_path / str(number))
        stack.memory.delete_first = {"c"}
        stack.memory.made, stack.memory.objects = first.memory.made, dict(first.memory.objects)
        left = [number]

        def refusing(real, left=left):  # type: ignore[no-untyped-def]
            def call(*args, **options):  # type: ignore[no-untyped-def]
                left[0] -= 1
                if left[0] < 0 if lasting else left[0] == -1:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return real(*args, **options)

            return call

        with monkeypatch.context() as patch:
            for place, name in OPERATIONS:
                patch.setattr(place, name, refusing(getattr(place, name)))
            try:
                ok = stack.up(*SECOND).ok
            except UserError as error:
                assert "\n" not in str(error)  # noqa: PT017
                ok = False
        ended_well = left[0] >= 0
        loaded = stack.load()
        assert not faults(loaded), number
        known = {id_ for _, id_ in names(loaded)}
        cut_off = {op.resource.name for op in loaded.pending_operations}
        for id_ in stack.memory.objects:
            assert id_ in known or id_.split("@")[0] in cut_off, (number, id_)
        if not stack.memory.calls:
            assert names(loaded) == old, number
        if ended_well:
            assert ok
            break
        assert stack.up(*SECOND).ok
    assert ended_well


def test_steps_that_end_together_are_all_there(stack: DiskStack) -> None:
    store = stack.store()
    base = store.load()
    keeper = Keeper(base, store.save)

    def step(number: int) -> None:
        new = ResourceState(
            f"urn:pulumi:dev::memory::a:b:C::r{number}", "a:b:C", custom=True, id="x"
        )
        keeper.begin("creating", new)
        keeper.end(operation=new, new=new)

    threads = [threading.Thread(target=step, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cut_off = stack.store().load()
    assert {r.name for r in cut_off.resources} == {f"r{n}" for n in range(24)}
    assert cut_off.pending_operations == ()
    keeper.flush()
    assert [r.urn for r in stack.store().load().resources] == [r.urn for r in cut_off.resources]
