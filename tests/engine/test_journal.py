"""The journal: every step is on the disk before and after, whatever ends the run."""

from __future__ import annotations

import bisect
import errno
import itertools
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.engine import atomicfile, secrets
from lab.engine.backend import checkpoints, envelope, journalfile
from lab.engine.backend.locks import held, locked
from lab.engine.backend.store import CheckpointStore
from lab.engine.journal import Begin, End, JournalError, Merge, Pending
from lab.engine.state import ResourceState, Snapshot
from lab.engine.usererror import UserError
from lab.engine.values import Secret
from tests.engine.enginekit import Thing, faults
from tests.engine.journalkit import DEV, DiskStack, Moment, manager

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
    Thing("a", parent="group", text=Secret("ü")),  # type: ignore[arg-type]
    Thing("b", uses=("a",), key="other"),
    Thing("c", after=("b",), key="other"),
    Thing("e", uses=("c",)),
]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # These tests end no machine, so nothing has to reach the disk itself.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(secrets, "ITERATIONS", 1)
    secrets._derive.cache_clear()
    manager.cache_clear()
    yield
    secrets._derive.cache_clear()


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


# -- what is on the disk -------------------------------------------------------------------


def test_every_write_adds_to_the_journal_and_the_state_is_replaced_twice(stack: DiskStack) -> None:
    moments = recorded(stack)
    assert len(moments) > 10
    assert len({m.state for m in moments}) == 1
    for before, after in itertools.pairwise(moments):
        assert after.journal.startswith(before.journal)
        assert len(after.journal) > len(before.journal)
    assert not stack.journal.exists()
    assert envelope.parse(stack.state.read_bytes()).journal == ""


def test_a_run_that_changes_nothing_needs_no_journal(stack: DiskStack) -> None:
    assert stack.up(*FIRST).ok
    before = checkpoints.read(stack.backend.bucket, DEV).resources
    stack.moments.clear()
    assert stack.up(*FIRST).ok
    assert stack.moments == []
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


def test_no_secret_is_in_a_journal_in_the_clear(stack: DiskStack) -> None:
    assert stack.up(Thing("a", text=Secret("very hidden"))).ok  # type: ignore[arg-type]
    assert stack.moments
    assert all(b"very hidden" not in m.journal + m.state for m in stack.moments)


def test_bytes_written_grow_with_the_number_of_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = 0
    pwrite, replace = os.pwrite, atomicfile.write_bytes

    def counting_pwrite(handle: int, data: bytes, at: int) -> int:
        nonlocal written
        written += len(data)
        return pwrite(handle, data, at)

    def counting_replace(path: Path, content: bytes, **options: object) -> None:
        nonlocal written
        written += len(content)
        replace(path, content, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(journalfile.os, "pwrite", counting_pwrite)
    monkeypatch.setattr("lab.engine.backend.bucket.write_bytes", counting_replace)
    sizes = []
    for count in (20, 200):
        written = 0
        assert DiskStack(tmp_path / str(count)).up(*[Thing(f"t{i:04}") for i in range(count)]).ok
        sizes.append(written / count)
    assert sizes[1] < 1.2 * sizes[0]


# -- killed at every byte --------------------------------------------------------------------


def test_a_kill_at_any_byte_loses_no_finished_step_and_knows_what_was_begun(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = recorded(stack)
    last = moments[-1]
    disk = {DEV.checkpoint: last.state}
    stack.put(last.state, b"")
    monkeypatch.setattr(stack.backend.bucket, "read", disk.__getitem__)
    returned = [len(moment.journal) for moment in moments]
    ends = journalfile.scan(last.journal, stack.journal).ends
    pad = bytes(64)
    read: dict[int, object] = {}
    for cut in range(returned[0], len(last.journal) + 1):
        # What was reserved and not written is zeros; every other time the file just ends.
        disk[DEV.journal] = last.journal[:cut] + (pad if cut % 2 else b"")
        found = checkpoints.read(stack.backend.bucket, DEV).deployment
        whole = bisect.bisect_right(ends, cut)
        if whole in read:
            # Half a record is as good as none.
            assert found == read[whole], cut
            continue
        read[whole] = found
        at = bisect.bisect_right(returned, cut) - 1
        loaded = stack.load()
        assert not faults(loaded), cut
        if cut == returned[at]:
            assert names(loaded) == names(moments[at].snapshot), cut
            pending = {(op.type, op.resource.name) for op in loaded.pending_operations}
            assert pending == moments[at].pending, cut
        else:
            # Killed in a write of several records: nobody was told yet of what these say.
            before, after = names(moments[at].snapshot), names(moments[at + 1].snapshot)
            assert before & after <= names(loaded) <= before | after, cut
    assert set(range(ends.index(returned[0]) + 1, len(ends) + 1)) == set(read)


def test_a_kill_before_the_first_record_leaves_the_state_of_before(stack: DiskStack) -> None:
    assert stack.up(*FIRST).ok
    before = stack.state.read_bytes()
    stack.moments.clear()
    assert stack.up(*SECOND).ok
    first = stack.moments[0]
    header = journalfile.scan(first.journal, stack.journal).ends[0]
    # 1. The journal is being made, and the state does not name it yet.
    for cut in range(header + 1):
        stack.put(before, first.journal[:cut])
        assert checkpoints.read(stack.backend.bucket, DEV) == envelope.parse(before)
    # 2. The state names it, and nothing has been begun.
    stack.put(first.state, first.journal[:header])
    found = checkpoints.read(stack.backend.bucket, DEV)
    assert found.resources == envelope.parse(before).resources


def test_a_kill_between_folding_and_removing_the_journal_changes_nothing(stack: DiskStack) -> None:
    moments = recorded(stack)
    after = stack.state.read_bytes()
    stack.put(after, moments[-1].journal)
    assert checkpoints.read(stack.backend.bucket, DEV) == envelope.parse(after)
    assert set(stack.up(*SECOND).changes) == {"same"}


def test_a_run_cut_off_after_any_record_and_resumed_ends_as_if_it_had_not_been(
    tmp_path: Path,
) -> None:
    whole = DiskStack(tmp_path / "whole")
    whole.memory.delete_first = {"c"}
    moments = recorded(whole)
    wanted = {(r.urn, r.id.split("@")[0]) for r in whole.load().resources}
    for number, moment in enumerate(moments):
        stack = DiskStack(tmp_path / str(number))
        stack.memory.delete_first = {"c"}
        stack.put(moment.state, moment.journal)
        # The world is what it was at that moment.
        stack.memory.objects = {id_: {"text": "", "key": ""} for id_ in moment.objects}
        was = {(r.urn, r.id): r.inputs for r in moment.snapshot.resources if r.id}
        end = whole.load().resources
        finished = {r.name for r in end if was.get((r.urn, r.id)) == r.inputs}
        assert stack.up(*SECOND).ok
        assert {(r.urn, r.id.split("@")[0]) for r in stack.load().resources} == wanted
        made = {c.split()[1] for c in stack.memory.calls if not c.startswith("delete")}
        assert not finished & made, number


# -- who folds, and when ---------------------------------------------------------------------


def test_looking_at_a_stack_folds_what_a_killed_run_left(stack: DiskStack) -> None:
    moments = recorded(stack)
    moment = moments[len(moments) // 2]
    stack.put(moment.state, moment.journal)
    seen = stack.backend.checkpoint(DEV)
    assert seen.journal == ""
    assert not stack.journal.exists()
    assert envelope.parse(stack.state.read_bytes()).resources == seen.resources
    assert {(r["urn"].split("::")[-1], r.get("id", "")) for r in seen.resources} == names(
        moment.snapshot
    )
    assert held(stack.backend.bucket, DEV) == []


def test_a_run_that_goes_on_is_seen_as_it_is_and_left_alone(stack: DiskStack) -> None:
    moments = recorded(stack)
    moment = moments[len(moments) // 2]
    stack.put(moment.state, moment.journal)
    with locked(stack.backend.bucket, DEV):
        seen = stack.backend.checkpoint(DEV)
    assert {r["urn"].split("::")[-1] for r in seen.resources} == {
        r.name for r in moment.snapshot.resources
    }
    assert (stack.state.read_bytes(), stack.journal.read_bytes()) == (moment.state, moment.journal)


def test_cancel_puts_the_steps_of_a_killed_run_into_the_state(stack: DiskStack) -> None:
    moment = recorded(stack)[-1]
    stack.put(moment.state, moment.journal)
    stack.backend.bucket.write(f"{DEV.locks}/x.json", b"{}")
    assert stack.backend.cancel(DEV) == 1
    assert not stack.journal.exists()
    assert envelope.parse(stack.state.read_bytes()).journal == ""


def test_a_stack_whose_journal_has_resources_is_not_removed(stack: DiskStack) -> None:
    moment = recorded(stack)[-1]
    stack.put(moment.state, moment.journal)
    with pytest.raises(UserError, match="still has resources"):
        stack.backend.remove(DEV, force=False, backups=False)


def test_a_state_that_names_a_journal_is_one_that_pulumi_refuses(stack: DiskStack) -> None:
    # Version 4 with a feature that is not known is Pulumi's way to say "not for this CLI".
    document = json.loads(recorded(stack)[0].state)
    assert document["version"] == 4
    assert document["features"] == ["lab-engine-journal"]
    assert json.loads(stack.state.read_bytes())["version"] == 3


def test_the_state_of_before_the_run_is_kept_whole(stack: DiskStack) -> None:
    assert stack.up(*FIRST).ok
    before = stack.state.read_bytes()
    assert stack.up(*SECOND).ok
    assert stack.backend.bucket.read(f"{DEV.checkpoint}.bak") == before


# -- damage ----------------------------------------------------------------------------------


def test_a_journal_damaged_in_the_middle_is_named_and_left_alone(stack: DiskStack) -> None:
    moment = recorded(stack)[-1]
    ends = journalfile.scan(moment.journal, stack.journal).ends
    damaged = bytearray(moment.journal)
    damaged[ends[2] + 30] ^= 1
    stack.put(moment.state, bytes(damaged))
    with pytest.raises(UserError, match=rf"truncate -s {ends[2]} \S+dev\.json\.journal") as caught:
        stack.load()
    assert str(stack.journal) in str(caught.value)
    assert stack.journal.read_bytes() == bytes(damaged)
    # The way out that the message names.
    os.truncate(stack.journal, ends[2])
    assert not faults(stack.load())


@pytest.mark.parametrize("what", ["missing", "another run's", "empty"])
def test_a_state_without_its_journal_is_refused_with_what_to_do(
    stack: DiskStack, what: str
) -> None:
    moment = recorded(stack)[-1]
    stack.put(moment.state, b"")
    if what == "missing":
        stack.journal.unlink()
    if what == "another run's":
        stack.journal.write_bytes(journalfile.frame(0, '{"journal":1,"id":"x","stack":"y"}'))
    with pytest.raises(UserError, match="put it back beside the state") as caught:
        stack.load()
    assert str(stack.journal) in str(caught.value)
    assert stack.state.read_bytes() == moment.state


def test_a_journal_of_a_later_format_is_refused(stack: DiskStack) -> None:
    moment = recorded(stack)[-1]
    id_ = envelope.parse(moment.state).journal
    stack.put(moment.state, journalfile.frame(0, f'{{"journal":2,"id":"{id_}"}}'))
    with pytest.raises(UserError, match="format 2"):
        stack.load()


def test_entries_that_do_not_belong_together_are_refused() -> None:
    merge: Merge[str] = Merge(["a"])
    with pytest.raises(JournalError):
        merge.apply(End(removed=(1,)))
    with pytest.raises(JournalError):
        merge.apply(End(operation=7))
    merge.apply(Begin(7, Pending("creating", "b")))
    merge.apply(End(operation=7, new="b"))
    assert (merge.resources, merge.pending) == (["b", "a"], [])


# -- a disk that is full -----------------------------------------------------------------------


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_nothing_is_begun_when_its_end_could_not_be_written(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stack.up(*FIRST).ok
    before = stack.load()
    stack.memory.calls.clear()
    monkeypatch.setattr(journalfile.os, "posix_fallocate", full)
    with pytest.raises(UserError, match="no space left on the disk; make room"):
        stack.up(*SECOND)
    assert stack.memory.calls == []
    assert names(stack.load()) == names(before)
    assert not stack.journal.exists()


def test_what_was_under_way_when_the_disk_filled_up_is_written_down(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = stack.memory.create

    def filling(*args, **options):  # type: ignore[no-untyped-def]
        # Room was reserved for this end; nothing else has any.
        monkeypatch.setattr(journalfile.os, "posix_fallocate", full)
        monkeypatch.setattr(atomicfile.os, "fsync", full)
        return create(*args, **options)

    monkeypatch.setattr(journalfile, "CHUNK", 1)
    stack.memory.create = filling  # type: ignore[method-assign]
    with pytest.raises(UserError, match="no space left on the disk"):
        stack.up(Thing("a"), Thing("b"))
    assert stack.memory.calls == ["create a"]
    monkeypatch.undo()
    stack.memory.create = create  # type: ignore[method-assign]
    found = stack.load()
    assert [r.name for r in found.resources if r.id and not r.is_provider] == ["a"]
    assert stack.up(Thing("a"), Thing("b")).ok
    assert stack.memory.calls == ["create a", "create b"]


def test_half_a_record_on_a_full_disk_hides_nothing_that_comes_later(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    room = [3000]

    def small(handle: int, data: bytes, at: int) -> int:
        if not room[0]:
            full()
        count = min(room[0], len(data))
        room[0] -= count
        return pwrite(handle, data[:count], at)

    monkeypatch.setattr(journalfile.os, "pwrite", small)
    store = stack.store()
    store.load()

    def state(name: str) -> ResourceState:
        return ResourceState(
            f"urn:pulumi:dev::memory::a:b:C::{name}", "a:b:C", custom=True, id=name
        )

    def nothing() -> Snapshot:
        raise AssertionError

    taken = []
    with pytest.raises(UserError, match="no space left"):  # noqa: PT012
        for number in range(100):
            taken.append(f"r{number}")
            store.record([End(new=state(taken[-1]))], nothing)
    # Killed now, all but the one whose write failed are there.
    assert [r.name for r in stack.store().load().resources] == taken[:-1]
    room[0] = 1 << 30
    store.record([End(new=state("late"))], nothing)
    assert [r.name for r in stack.store().load().resources] == [*taken, "late"]


def test_a_state_that_cannot_be_folded_is_folded_the_next_time(
    stack: DiskStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = CheckpointStore.fold

    def on_a_full_disk(self: CheckpointStore, *args: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(atomicfile.os, "fsync", full)
            fold(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(CheckpointStore, "fold", on_a_full_disk)
    with pytest.raises(UserError, match="no space left"):
        stack.up(*FIRST)
    assert stack.journal.exists()
    monkeypatch.undo()
    assert {r.name for r in stack.load().resources} >= {"group", "a", "b", "c", "d"}
    assert set(stack.up(*FIRST).changes) == {"same"}
    assert not stack.journal.exists()


OPERATIONS = (
    (journalfile.os, "pwrite"),
    (journalfile.os, "posix_fallocate"),
    (journalfile.os, "fdatasync"),
    (journalfile.os, "open"),
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
                    full()
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
        found = stack.backend.checkpoint(DEV)
        assert found.journal == "", number
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


# -- several threads -----------------------------------------------------------------------------


def test_steps_that_end_together_are_all_there(stack: DiskStack) -> None:
    store = stack.store()
    base = store.load()
    from lab.engine.keeper import Keeper

    keeper = Keeper(base, store)

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
