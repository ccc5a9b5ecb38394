"""How nodes are held, without any: whatever comes at an unlucky moment, nobody waits for ever."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from lab.control_plane import NodeSpec
from lab.nodes import cri, first_process, held_node
from lab.nodes.first_process import FirstProcess
from lab.nodes.folder import RealNodeFolder
from lab.nodes.held_node import HeldNode
from lab.nodes.machines import Machines
from lab.nodes.model import NodesError, NodesSpec
from lab.nodes.program import Program

SPEC = NodeSpec("a")


class SlowNode:
    """A node that joins, whose programs need until they are let; what is done around it is noted."""

    name = "a"
    is_on = True

    def __init__(self) -> None:
        self.around = Mock(heard=AsyncMock())
        self.let, self.asked = asyncio.Event(), asyncio.Event()
        self.machines = Machines(self.around, self.around, self.around, self.around.told)
        self.machines.wish(NodesSpec(Path("/lab"), (SPEC,), (), joins=("a",)))
        self.machines.held["a"] = self  # type: ignore[assignment]
        self.machines._changing["a"] = asyncio.Lock()

    @property
    def done(self) -> list[str]:
        return [call[0] for call in self.around.mock_calls]

    async def begin(self, *_: object) -> None:
        self.asked.set()
        await self.let.wait()
        self.around.begun()

    async def cease(self, **_: object) -> None:
        await self.begin()


def test_a_node_begins_to_its_end_whoever_follows_the_hosts_meanwhile() -> None:
    async def cancelled_halfway() -> list[str]:
        node = SlowNode()
        follower = asyncio.create_task(node.machines.begin(SPEC))
        await node.asked.wait()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)
        node.let.set()
        while "told" not in node.done:
            await asyncio.sleep(0.01)
        assert node.machines.playing == {"a"}
        return node.done

    # Nodes are told of when their hosts have heard of them.
    done = asyncio.run(asyncio.wait_for(cancelled_halfway(), 120))
    assert done == ["begun", "until_ready", "connect", "heard", "told"]


def test_that_no_kubelet_runs_is_not_said_before_it_has_ended() -> None:
    async def asked_while_it_ends() -> None:
        node = SlowNode()
        node.machines._playing["a"] = SPEC
        ending = asyncio.create_task(node.machines.cease("a"))
        await node.asked.wait()
        asking = asyncio.create_task(node.machines.control("a", "kubelet", "stop"))
        await asyncio.sleep(0)
        node.let.set()
        with pytest.raises(NodesError, match="has not joined"):
            await asking
        assert "begun" in node.done
        await ending

    asyncio.run(asyncio.wait_for(asked_while_it_ends(), 120))


class Answers:
    """The first process of a node, as far as its pipes go."""

    returncode = None

    def __init__(self) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader()
        self.heard: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        self.heard.append(json.loads(line))

    async def drain(self) -> None:
        pass

    def answer(self, request: int) -> None:
        """To the first, second… that was heard, with its place as the pid."""
        said = {"pid": request, "number": self.heard[request - 1]["number"]}
        self.stdout.feed_data(json.dumps(said).encode() + b"\n")

    async def until_heard(self, count: int) -> None:
        while len(self.heard) < count:
            await asyncio.sleep(0)


@pytest.mark.parametrize("late", [False, True], ids=["who-asked-went-away", "it-came-too-late"])
def test_an_answer_is_nobody_elses(monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    async def asked() -> int:
        process = Answers()
        node = HeldNode(SPEC, None, SimpleNamespace(log="its log"), {}, _process=process)  # type: ignore[arg-type]
        if late:
            monkeypatch.setattr(held_node, "_ANSWER_SECONDS", 0.05)
            with pytest.raises(NodesError, match="did not answer within"):
                await node.program("kubelet", "state")
            monkeypatch.setattr(held_node, "_ANSWER_SECONDS", 60)
        else:
            first = asyncio.create_task(node.program("kubelet", "state"))
            await process.until_heard(1)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(node.program("kubelet", "state"))
        process.answer(1)
        await process.until_heard(2)
        process.answer(2)
        return int((await second)["pid"])

    assert asyncio.run(asyncio.wait_for(asked(), 120)) == 2


def test_a_program_that_ends_while_others_are_reaped_is_seen_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = FirstProcess(RealNodeFolder(tmp_path), {"read": [], "written": []})
    program = Program("kubelet", [], tmp_path / "kubelet.log", "", "")
    program.pid = 41
    node._programs["kubelet"] = program
    # It runs when it is asked for, and is the next that the kernel has to tell of.
    ended = {41: [(0, 0)], -1: [(77, 0), (41, 0), (0, 0)]}
    monkeypatch.setattr(os, "waitpid", lambda pid, _: ended[pid].pop(0))
    node._reap()
    assert not program.runs


class Containerd(Program):
    """One that answers whenever it runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__("containerd", [], folder / "containerd.log", "", "")
        self.starts = 0

    def start(self) -> None:
        assert self.pid is None, "it is started twice"
        self.starts += 1
        self.wanted, self.pid = True, self.starts

    async def stop(self) -> None:
        self.wanted, self.pid, self.words = False, None, ""


@pytest.fixture
def trying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FirstProcess, Containerd]:
    monkeypatch.setattr(first_process, "_AGAIN_SECONDS", 0)
    monkeypatch.setattr(FirstProcess, "_reap", lambda _: None)
    node = FirstProcess(RealNodeFolder(tmp_path), {"read": [], "written": []})
    containerd = node._programs["containerd"] = Containerd(tmp_path)
    containerd.start()
    return node, containerd


def test_containerd_is_tried_until_it_serves_kubelets(
    trying: tuple[FirstProcess, Containerd], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as others have all watches of files, however often that is."""
    node, containerd = trying
    faults = [*["couldn't initialize inotify: too many open files"] * 12, ""]
    monkeypatch.setattr(cri, "fault", lambda _: faults.pop(0))
    assert asyncio.run(asyncio.wait_for(node._serves(containerd), 120))
    assert faults == []


def test_a_containerd_that_somebody_stops_while_it_is_tried_stays_stopped(
    trying: tuple[FirstProcess, Containerd], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, containerd = trying
    monkeypatch.setattr(cri, "fault", lambda _: "couldn't initialize inotify")
    monkeypatch.setattr(first_process, "_AGAIN_SECONDS", 0.01)

    async def stopped() -> bool:
        running = asyncio.create_task(node._serves(containerd))
        while containerd.starts < 3:
            await asyncio.sleep(0)
        await node._program({"program": "containerd", "action": "stop"})
        assert not await running
        return containerd.runs

    assert not asyncio.run(asyncio.wait_for(stopped(), 120))
