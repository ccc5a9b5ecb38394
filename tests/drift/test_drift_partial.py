"""What cannot be looked at is told as such, once, and the rest is looked at all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuclusters.cli import drift, drift_look
from gpuclusters.cli.errors import UsageError
from gpuclusters.drift import cluster
from gpuclusters.drift.engine import View
from gpuclusters.drift.nodes import Expected
from gpuclusters.drift.report import Finding, Looked, Unseen, report
from gpuclusters.host.connect import SshCredentials
from gpuclusters.host.model import HostConnection
from tests.drift.drifting import CONNECTION


def test_a_machine_that_is_away_is_a_finding_and_told_once_for_all_its_resources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, closed_port: int
) -> None:
    monkeypatch.setenv("GPU_CLUSTERS_SSH_COMMAND_TIMEOUT_SECONDS", "20")
    away = HostConnection.model_validate(
        {**CONNECTION, "host": "hgx-02", "address": "127.0.0.1", "port": closed_port}
    )
    key = SshCredentials("a test", agent_path=str(tmp_path / "no-agent"))
    found = list(drift_look.of_machines({"hgx-02": away}, key))
    told = [(f.id, f.where) for f in found if isinstance(f, Finding)]
    assert told == [("host.unreachable", "hgx-02")]
    assert [one.count for one in found if isinstance(one, Looked)] == [0]
    why = f"hgx-02 ({away.address}:{away.port}): could not read: no SSH connection"
    engine = [Unseen(f"resource r{n}", why) for n in range(9)]
    other = Unseen("resource x", "the API server says no")
    joined = list(drift_look.without_repeats([*engine, other, *found]))
    assert sorted(u.what for u in joined if isinstance(u, Unseen)) == [
        "9 resources on hgx-02",
        "machine hgx-02",
        "resource x",
    ]
    assert report("s", joined).exit_code == 2


def test_a_cluster_that_does_not_answer_is_not_looked_at(closed_port: int) -> None:
    kubeconfig = yaml.safe_dump(
        {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{closed_port}"}}],
            "users": [{"name": "u", "user": {"token": "made-up"}}],
        }
    )
    for text in (kubeconfig, "not: a kubeconfig"):
        (told,) = cluster.look(text, View(), Expected())
        assert isinstance(told, Unseen)
        assert told.what == cluster.ALL


def test_options_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    for patterns in (["nothing-known"], ["nothing@host"]):
        with pytest.raises(UsageError, match="no drift has the code"):
            drift._patterns(patterns)
    assert drift._patterns(["unit-*", "node.cordoned@x"]) == ["unit-*", "node.cordoned@x"]
    file = tmp_path / "a.json"
    for text, said in (
        ("", "cannot be read as JSON"),
        ("{}", "is not what"),
        ('{"findings": 1', "cannot be read as JSON"),
    ):
        file.write_text(text)
        with pytest.raises(UsageError, match=said):
            drift._read(file, [])
    with pytest.raises(UsageError, match="cannot be read"):
        drift._read(tmp_path / "none.json", [])


def test_a_finding_of_a_machine_that_was_reached_keeps_its_resources() -> None:
    found = [
        Finding("host.unit-failed", "hgx-01", "a.service"),
        Unseen("resource a", "hgx-01 (x): no"),
    ]
    assert list(drift_look.without_repeats(found)) == found
