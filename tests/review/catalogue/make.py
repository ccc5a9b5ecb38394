"""Makes the plans of the catalogue anew: `python -m tests.review.catalogue.make [NAME]…`.

Two configurations of one stack go through the embedded engine, offline: the first one's preview becomes a
state, as if it had been made, and the second one is previewed against it. No machine and no cluster is
reached. What nobody reviews is left out of the recordings.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gpuclusters.fabric.table import TABLES, Baseboard, plan_layout
from tests.review.catalogue import loading
from tests.unit.config.documents import patched

PROJECT = Path(__file__).resolve().parents[3]
PLANS = Path(__file__).with_name("plans")
CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
SECRETS = {"secret-rotated": ("controller-ssh-private-key", "bmc-password")}
"""Changes of secrets alone: which ones are set anew."""
PROTECTED = "protect-removed"
"""The state protects the partitions of a machine, the program does not any more."""
FIRST = "first-deployment"
"""There is no state yet."""
STACK = "prod"
CHART = "charts/kata-deploy-4.1.0.tgz"
LINKED = [
    "Pulumi.yaml",
    "__main__.py",
    "stacks",
    "components",
    "gpuclusters",
    "caas",
    "lab",
    ".venv",
]
FOUND = {"fabric_manager_version": "595.58.03", "fabric_manager_run": "boot-1"}
"""What a run would find, of what a preview does not know yet."""
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: prod, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: admin, user: {token: made-up-for-the-catalogue}}]
contexts: [{name: prod, context: {cluster: prod, user: admin}}]
current-context: prod
"""
KEPT_FOR_SAME = (
    "CdiSpec",
    "FabricPartitions",
    "TenancyPolicy",
    "FleetPreflight",
    "VfioBinding",
    "Release",
)
"""Unchanged resources whose inputs tell of capacity; of the others the name is enough."""


class Stack:
    """One stack in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for name in LINKED:
            (self.folder / name).symlink_to(PROJECT / name)
        (self.folder / "charts").mkdir()
        self.checksum = _pack(PROJECT / "lab/charts/kata-deploy", self.folder / CHART)
        self.env = {
            **os.environ,
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_CONFIG_PASSPHRASE": "catalogue",
            "GPU_CLUSTERS_LAB": str(folder / "no-lab"),
        }
        (folder / "state").mkdir()
        self.write(self.section())
        self.engine("stack", "init", STACK, "--non-interactive")
        self.set_secrets({"kubeconfig": KUBECONFIG, **_keys("a"), "bmc-password": "first"})

    def section(self) -> dict[str, Any]:
        """The section of the committed example, with three machines."""
        document = yaml.safe_load((PROJECT / "Pulumi.hgx-h100.yaml").read_text())
        section: dict[str, Any] = document["config"]["gpu-clusters:caas"]
        section["name"] = "h100"
        section["hosts"]["machines"] = section["hosts"]["machines"][:3]
        section["nodes"] = [
            {**{k: v for k, v in node.items() if k != "partitions"}, "partition-layout": layout}
            for node, layout in zip(section["nodes"], ([8], [4, 4], [4, 2, 1, 1]), strict=False)
        ]
        section["partition-layout"] = "mixed"
        chart = {"source": "file", "path": CHART, "sha256": self.checksum}
        section["kata"]["chart"] = chart
        return section

    def write(self, section: Mapping[str, Any]) -> None:
        """Make this the configuration; secrets stay."""
        path = self.folder / f"Pulumi.{STACK}.yaml"
        known = yaml.safe_load(path.read_text()) if path.exists() else {"config": {}}
        known["config"] |= {"gpu-clusters:cluster-type": "caas", "gpu-clusters:caas": section}
        path.write_text(yaml.safe_dump(known, sort_keys=False))

    def set_secrets(self, secrets: Mapping[str, str]) -> None:
        for name, text in secrets.items():
            self.engine("config", "set", "--stack", STACK, "--secret", name, text=text)

    def engine(self, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "engine", *arguments],
            cwd=self.folder,
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{arguments}: {done.stdout[-1200:]}{done.stderr[-600:]}")
        return done.stdout

    def preview(self, *flags: str) -> dict[str, Any]:
        text = self.engine("preview", "--stack", STACK, "--json", "--show-sames", *flags)
        document: dict[str, Any] = json.loads(text)
        return document

    def adopt(self, protected: str = "") -> None:
        """Make the state what the preview would make."""
        # Twice: what depends on outputs is known only when there are some.
        for _ in range(2):
            masked, shown = self.preview(), self.preview("--show-secrets")
            resources = _state(masked["steps"], {s["urn"]: s for s in shown["steps"]}, protected)
            exported = json.loads(self.engine("stack", "export", "--stack", STACK))
            exported["deployment"]["resources"] = resources
            self.engine("stack", "import", "--stack", STACK, text=json.dumps(exported))


def _pack(folder: Path, archive: Path) -> str:
    """A chart's archive that is the same on every machine."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            entry = tarfile.TarInfo(f"kata-deploy/{path.relative_to(folder)}")
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    archive.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return hashlib.sha256(archive.read_bytes()).hexdigest()


def _keys(salt: str) -> dict[str, str]:
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(salt.encode()).digest())
    text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    return {"ssh-private-key": text, "controller-ssh-private-key": text}


def _state(
    masked: list[dict[str, Any]], shown: Mapping[str, dict[str, Any]], protected: str
) -> list[dict[str, Any]]:
    resources: list[dict[str, Any]] = []
    providers: dict[str, dict[str, Any]] = {}
    for step in masked:
        new, clear = step["newState"], shown[step["urn"]]["newState"]
        kept = ("urn", "custom", "type", "parent", "dependencies")
        state = {key: new[key] for key in kept if key in new}
        kind = new["type"].rsplit(":", 1)[-1].rsplit("/", 1)[-1]
        inputs = _secret(new.get("inputs") or {}, clear.get("inputs") or {})
        if new["custom"]:
            state["id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, step["urn"]))
            state["inputs"] = inputs = _known(inputs)
            state["outputs"] = {**inputs, **_outputs(kind, inputs)}
        if new.get("propertyDependencies"):
            state["propertyDependencies"] = {
                k: v or [] for k, v in new["propertyDependencies"].items()
            }
        if protected and step["urn"].endswith(f"::{protected}"):
            state["protect"] = True
        reference = new.get("provider")
        if reference:
            urn = reference.rpartition("::")[0]
            id_ = str(uuid.uuid5(uuid.NAMESPACE_URL, urn))
            state["provider"] = f"{urn}::{id_}"
            name = urn.rsplit("::", 1)[-1]
            if name.startswith("default"):
                version = name.removeprefix("default").strip("_").replace("_", ".")
                given = {"version": version} if version else {}
                made = {"urn": urn, "custom": True, "id": id_, "type": urn.split("::")[2]}
                providers[urn] = {**made, "inputs": given, "outputs": given}
        resources.append(state)
    resources[1:1] = list(providers.values())
    return resources


def _secret(masked: Any, clear: Any) -> Any:
    if masked == "[secret]" and clear != masked:
        return {SIGNATURE: SECRET, "plaintext": json.dumps(clear)}
    if isinstance(masked, dict):
        return {key: _secret(value, clear[key]) for key, value in masked.items()}
    if isinstance(masked, list):
        return [_secret(a, b) for a, b in zip(masked, clear, strict=True)]
    return clear


def _known(value: Any) -> Any:
    """What a preview did not know yet, as a run would have found it."""
    if isinstance(value, dict):
        return {
            key: FOUND.get(key, UNKNOWN) if item == UNKNOWN else _known(item)
            for key, item in value.items()
        }
    return [_known(item) for item in value] if isinstance(value, list) else value


def _outputs(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    if kind == "ServiceVm":
        return {"fabric_manager_version": "595.58.03", "run": "boot-1", "drift": [], "warnings": []}
    if kind == "FabricPartitions":
        table = TABLES[Baseboard(inputs["baseboard"])]
        cut = [table.partition(n) for n in inputs.get("partitions") or ()]
        cut = cut or list(plan_layout(table, tuple(inputs["layout"])))
        return {
            "active": [p.id for p in cut],
            "applied": [p.id for p in cut],
            "warnings": [],
            "gpus_by_partition": {str(p.id): list(p.modules) for p in cut},
        }
    if kind == "CdiSpec":
        return {
            "qualified_names": [f"{inputs['kind']}={d['name']}" for d in inputs["devices"]],
            "content": "{}",
            "sha256": "0" * 64,
            "drift": [],
        }
    if kind == "TenancyPolicy":
        return {"ready": True, "conditions": {}, "drift": []}
    return {"drift": []} if kind in ("HostBoot", "HostFile", "VfioBinding") else {}


def trimmed(document: dict[str, Any]) -> dict[str, Any]:
    """What a review reads, and what makes the recording the same each time."""
    for step in document["steps"]:
        for side in ("oldState", "newState"):
            state = step.get(side)
            if state is None:
                continue
            kind = state["type"].rsplit(":", 1)[-1].rsplit("/", 1)[-1]
            kept = {
                k: state[k] for k in ("urn", "custom", "type", "parent", "protect") if k in state
            }
            if step["op"] != "same" or kind in KEPT_FOR_SAME:
                inputs = dict(state.get("inputs") or {})
                inputs.pop("__provider", None)
                if step["op"] in ("create", "delete"):
                    inputs = {k: v for k, v in inputs.items() if len(json.dumps(v)) <= 1200}
                kept["inputs"] = inputs
            step[side] = kept
        step.pop("provider", None)
    document["steps"].sort(key=lambda step: step["urn"])
    document["duration"] = 0
    document.pop("diagnostics", None)
    return document


def shortened(document: dict[str, Any]) -> None:
    """Leaves out what is as in the recording in which nothing changes."""
    base = {step["urn"]: step for step in loading.document(loading.BASE)["steps"]}
    document["not-there"] = sorted(base.keys() - {step["urn"] for step in document["steps"]})
    document["steps"] = [step for step in document["steps"] if base.get(step["urn"]) != step]
    document["rest-as-in"] = loading.BASE


def written(document: Mapping[str, Any]) -> str:
    """One line for each step, so that a change of a recording can be read."""
    steps = ",\n".join(json.dumps(step, sort_keys=True) for step in document["steps"])
    rest = {key: value for key, value in document.items() if key != "steps"}
    head = json.dumps(rest, sort_keys=True, indent=1)[:-2]
    return f'{head},\n "steps": [\n{steps}\n]}}\n'


@contextlib.contextmanager
def _stack() -> Iterator[Stack]:
    with tempfile.TemporaryDirectory() as folder:
        yield Stack(Path(folder))


def _keep(name: str, stack: Stack) -> None:
    document = trimmed(stack.preview())
    if name not in (loading.BASE, FIRST):
        shortened(document)
    text = written(document).replace(str(stack.folder), "PROJECT")
    (PLANS / f"{name}.json").write_text(text)
    print(f"{name}: {len(text) // 1024} KiB", flush=True)


def main(names: list[str]) -> None:
    wanted = set(names or [loading.BASE, FIRST, PROTECTED, *CHANGES, *SECRETS])
    # The base is first: the others are written against it.
    for name, protected in ((loading.BASE, ""), (PROTECTED, "hgx-001-fabric")):
        if name in wanted:
            with _stack() as stack:
                stack.adopt(protected)
                _keep(name, stack)
    if FIRST in wanted:
        with _stack() as stack:
            _keep(FIRST, stack)
    if wanted & {*CHANGES, *SECRETS}:
        with _stack() as stack:
            stack.adopt()
            base = stack.section()
            for name, change in CHANGES.items():
                if name in wanted:
                    stack.write(patched(base, change))
                    _keep(name, stack)
            stack.write(base)
            fresh = {**_keys("b"), "bmc-password": "second"}
            for name, secrets in SECRETS.items():
                if name in wanted:
                    stack.set_secrets({secret: fresh[secret] for secret in secrets})
                    _keep(name, stack)


if __name__ == "__main__":
    main(sys.argv[1:])
