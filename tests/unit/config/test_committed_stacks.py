"""The stack files of this repository are right, and what their comments say is true."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from pathlib import Path

import asyncssh
import jsonschema
import pytest
import yaml
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from docs import schema
from gpuclusters.compat.platforms import PRESETS
from gpuclusters.config import keys
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.cluster import SECRET_KEYS
from gpuclusters.config.fault import told
from gpuclusters.config.nodes import BY_LEASE
from gpuclusters.config.plan import plan
from gpuclusters.config.stack import SECTIONS, ClusterType, StackConfig, check_stack_file
from gpuclusters.fabric.table import TABLES, plan_layout

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "configuration.md"
STACKS = [*sorted(ROOT.glob("Pulumi.*.yaml")), ROOT / "tests/stacks/Pulumi.existing.yaml"]


def _config(path: Path) -> StackConfig:
    checked = check_stack_file(path)
    assert isinstance(checked, StackConfig), "\n".join(map(str, checked))
    return checked


def _caas(name: str) -> CaasConfig:
    return _config(ROOT / f"Pulumi.{name}.yaml").section


@cache
def committed(schema: Path) -> jsonschema.Draft202012Validator:
    read = json.loads(schema.read_text())
    jsonschema.Draft202012Validator.check_schema(read)
    return jsonschema.Draft202012Validator(read)


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.name)
def test_a_committed_stack_is_right_and_fits_the_schema_that_it_names(path: Path) -> None:
    assert _config(path).warnings == ()
    text = path.read_text()
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert named is not None
    committed((path.parent / named[1]).resolve()).validate(yaml.safe_load(text))
    # In quotes, so that every reader of YAML takes it for text.
    bare = r"(?<![\"0-9a-f])[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
    assert re.findall(bare, text) == []


def test_the_passphrase_that_the_dev_stack_names_belongs_to_its_salt() -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    passphrase = re.search(r"sealed with the passphrase (\S+?),", text)
    assert passphrase is not None
    version, salt, *sealed = yaml.safe_load(text)["encryptionsalt"].split(":")
    assert (version, sealed[0]) == ("v1", "v1")
    nonce, ciphertext = (base64.b64decode(part) for part in sealed[1:])
    key = hashlib.pbkdf2_hmac(
        "sha256", passphrase[1].encode(), base64.b64decode(salt), 1_000_000, 32
    )
    assert AESGCM(key).decrypt(nonce, ciphertext, None) == b"pulumi"


def test_the_layouts_that_the_dev_stack_suggests_can_be_cut() -> None:
    text = (ROOT / "Pulumi.dev.yaml").read_text()
    suggested = re.search(r"Try (\[.*?\]) or (\S+?),", text)
    assert suggested is not None
    assert suggested[2] == BY_LEASE
    plan_layout(TABLES[PRESETS[_caas("dev").platform].baseboard], json.loads(suggested[1]))


def test_the_example_cuts_its_boards_as_its_comments_say() -> None:
    config = _caas("hgx-h100")
    nodes = {node.name: node for node in plan(config).nodes}
    cuts = {
        name: tuple(sorted((cut.size for cut in node.partitions), reverse=True))
        for name, node in nodes.items()
    }
    assert len(cuts) == 10
    described = {name: cuts.pop(name) for name in ("hgx-001", "hgx-002", "hgx-003")}
    assert described == {"hgx-001": (8,), "hgx-002": (4, 4), "hgx-003": (4, 2, 1, 1)}
    assert set(cuts.values()) == {(4, 4)}, "all others: two halves"
    assert nodes["hgx-003"].board == nodes["hgx-001"].board, "written out, and of the preset"
    assert config.hosts.source == "existing"
    keys = [asyncssh.import_public_key(machine.host_key) for machine in config.hosts.machines]
    assert len({key.get_fingerprint() for key in keys}) == len(keys) == 10


def test_the_project_declares_the_sections_and_not_the_secrets() -> None:
    project = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())
    declared = project["config"]
    assert set(declared) == {"cluster-type", "caas", "rke2", "usernetes", "gke", "lab"}
    assert all(entry["description"] for entry in declared.values())
    # Pulumi asks for every declared key without a default, and refuses a secret one that is plain.
    assert [key for key, entry in declared.items() if "default" not in entry] == ["cluster-type"]
    assert not set(SECRET_KEYS) & set(declared)


def test_the_committed_schema_is_current() -> None:
    assert keys.SCHEMA_FILE.read_text() == schema.render(), "run `make schema`"


@pytest.mark.parametrize("kind", list(SECTIONS))
def test_every_key_can_be_explained(kind: ClusterType) -> None:
    known = {key.name: key for one in keys.mappings(kind.value) for key in one.keys}
    for model in [one for root in SECTIONS[kind].models for one in schema.models(root)]:
        for info in model.model_fields.values():
            assert keys.meaning(model.__name__, info.alias), f"{model.__name__}.{info.alias}"
            assert known[info.alias].values


def test_the_example_at_the_top_of_the_reference_is_right(tmp_path: Path) -> None:
    example = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(example[1])
    assert _config(path).section == _caas("dev")


def test_the_faults_that_the_reference_shows_are_said_in_these_words(tmp_path: Path) -> None:
    shown = re.search(r"```\n(Pulumi\.dev.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    document = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())
    caas = document["config"]["gpu-clusters:caas"]
    caas["partition-layout"] = [4, 2]
    caas["tenants"][1] = {"name": "globex", "gpu": 8}
    del caas["proof"]
    path = tmp_path / "Pulumi.dev.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    checked = check_stack_file(path)
    assert isinstance(checked, list)
    assert [told(path, fault) for fault in checked] == shown[1].splitlines()
