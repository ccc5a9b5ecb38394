"""The file system of a node: whatever root writes there, the machine keeps what it has."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.nodes.real_lab import only_where_possible

pytestmark = [pytest.mark.real_node, only_where_possible]
ROOT = Path(__file__).parents[3]

MAKE = """
import json, sys
from pathlib import Path
from lab.nodes.mounts import Mounts
folder, read, written, name = sys.argv[1:]
Mounts(Path(folder), [Path(read)], [Path(written)]).make({}, {})
told = {}
for place in [*json.load(sys.stdin), read, written, "/"]:
    try:
        file = Path(place) / name
        file.write_text("by a node")
        told[place] = file.read_text()
    except OSError as error:
        told[place] = error.strerror
print(json.dumps(told))
"""


@pytest.mark.attack(
    by="whoever may make pods on a real node of the lab",
    tries="write as root through a hostPath volume into folders of the computer",
    stopped_by="all that a node writes there is kept in its own memory, or refused",
)
def test_what_root_writes_in_a_node_is_not_on_the_machine(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("node", "read", "written")]
    for folder in folders:
        folder.mkdir()
    name = f"by-a-node-{secrets.token_hex(6)}"
    machine = [str(p) for p in Path("/").iterdir() if p.is_dir() and not p.is_symlink()]
    places = sorted({*machine, "/usr/local", "/root", "/opt", "/home"} - {"/proc", "/sys", "/dev"})
    command = ["unshare", "--mount", sys.executable, "-c", MAKE, *map(str, folders), name]
    done = subprocess.run(
        command, input=json.dumps(places), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    _, read, written = map(str, folders)
    # Only what a node is to write to is the machine's own.
    assert [place for place in told if (Path(place) / name).exists()] == [written]
    assert told.pop("/") == told.pop(read) == "Read-only file system"
    assert set(told.values()) == {"by a node"}
