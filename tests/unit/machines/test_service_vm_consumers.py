"""What is written for libvirt, cloud-init, systemd and the shell is read by libvirt's schema, cloud-init's
schema, systemd-analyze and a shell. Where a consumer cannot be had, its tests are skipped with the reason."""

import base64
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.service_vm import domain_xml
from gpuclusters.service_vm.decide import PROGRAM, UNIT, UNITS
from gpuclusters.service_vm.host import _tar
from gpuclusters.vfio import decide as vfio
from lab.tools.debian_packages import unpacked
from tests.fixtures.debian import libraries
from tests.fixtures.loopback import Answering, serving
from tests.unit.machines.test_service_vm import PACKAGES, domain, inputs, seed

ROOMS = Path(__file__).resolve().parents[3] / "gpuclusters"
FOLDER = ROOMS / "service_vm/scripts"
CUSTOM = {"version": "595.58.03", "partitions": {"0": [1, 2]}, "partition_rail_policy": "greedy"}
VARIANTS = [
    pytest.param({}, id="supermicro"),
    pytest.param(
        {"switches": PRESETS[Platform.DGX_H100].switches, "extra_functions": []}, id="dgx"
    ),
    pytest.param({"packages": PACKAGES}, id="packages"),
    pytest.param({"fabric_manager": CUSTOM, "name": "fm", "vcpus": 4}, id="custom"),
]


def validated(tmp_path: Path, kind: str, text: str) -> subprocess.CompletedProcess[str]:
    """`virt-xml-validate FILE KIND`, which is xmllint with libvirt's schema of that kind."""
    folder = unpacked("libvirt", ["libvirt0", "libxml2", "libxml2-utils"])
    file = tmp_path / f"{kind}.xml"
    file.write_text(text)
    schema = folder / f"usr/share/libvirt/schemas/{kind}.rng"
    argv = [folder / "usr/bin/xmllint", "--noout", "--relaxng", schema, file]
    return subprocess.run(argv, capture_output=True, text=True, env=libraries(folder))


@pytest.mark.parametrize("changes", VARIANTS)
def test_libvirts_schema_takes_the_domain(tmp_path: Path, changes: dict[str, Any]) -> None:
    done = validated(tmp_path, "domain", domain_xml.text(domain(inputs(**changes))))
    assert done.returncode == 0, done.stderr


def test_libvirts_schema_takes_the_network_and_is_one_that_refuses(tmp_path: Path) -> None:
    network = domain_xml.network(inputs().network, host="hgx-01")
    assert validated(tmp_path, "network", domain_xml.text(network)).returncode == 0
    text = domain_xml.text(domain(inputs())).replace('managed="no"', 'managed="perhaps"')
    assert validated(tmp_path, "domain", text).returncode != 0


@pytest.fixture(scope="module")
def cloud_config() -> Any:
    """cloud-init's own schema of cloud-config."""
    folder = unpacked("cloud-init", ["cloud-init"])
    (schema,) = folder.rglob("schema-cloud-config-v1.json")
    return jsonschema.Draft4Validator(json.loads(schema.read_text()))


@pytest.mark.parametrize("changes", VARIANTS)
def test_cloud_inits_schema_takes_the_user_data(cloud_config: Any, changes: dict[str, Any]) -> None:
    user_data = seed(inputs(**changes)).user_data
    assert user_data.startswith("#cloud-config\n")
    faults = cloud_config.iter_errors(yaml.safe_load(user_data))
    assert [fault.message for fault in faults] == []


def test_cloud_inits_schema_takes_what_the_host_adds(cloud_config: Any, tmp_path: Path) -> None:
    files = made_seed(tmp_path)
    vendor_data = yaml.safe_load(files["vendor-data"])
    assert [fault.message for fault in cloud_config.iter_errors(vendor_data)] == []
    (account,) = vendor_data["users"]
    assert account["lock_passwd"] is True
    assert account["ssh_authorized_keys"][0].startswith("ssh-ed25519 AAAA")
    assert vendor_data["ssh_keys"]["ed25519_private"].startswith("-----BEGIN OPENSSH PRIVATE KEY")
    assert set(files) == {"user-data", "meta-data", "network-config", "vendor-data"}
    assert not set(yaml.safe_load(files["user-data"])) & set(vendor_data), "each key has one owner"


def made_seed(tmp_path: Path) -> Mapping[str, str]:
    """The files that the script puts into the seed, with a stand-in for the ISO tool."""
    tools = tmp_path / "bin"
    tools.mkdir()
    tool = tools / "genisoimage"
    tool.write_text('#!/bin/sh\nmkdir -p "$KEEP" && cp ./*-* "$KEEP/" && echo iso >"$3"\n')
    tool.chmod(0o755)
    keep, state, image = tmp_path / "keep", tmp_path / "state", tmp_path / "images/seed.iso"
    body = (FOLDER / "seed.sh").read_text()
    content = base64.encodebytes(_tar(seed(inputs()).files)).decode()
    done = subprocess.run(
        ["sh", "-s", "--", "fabric-manager", str(image), "digest", str(state), "fm"],
        input=f"{body}\nmain \"$@\" <<'END'\n{content}END\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "KEEP": str(keep)},
    )
    assert done.returncode == 0, done.stderr
    assert image.stat().st_mode & 0o777 == 0o600
    assert (state / "fabric-manager.seed").read_text().startswith("digest ")
    return {path.name: path.read_text() for path in keep.iterdir()}


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    folder = unpacked("systemd", ["systemd", "libsystemd-shared", "libsystemd0"])
    root = tmp_path / "root"
    units = root / "etc/systemd/system"
    units.mkdir(parents=True)
    files = [
        p
        for room in ("gcp", "service_vm", "vfio")
        for p in (ROOMS / room / "scripts").iterdir()
        if p.suffix in {".service", ".timer"}
    ]
    names = [path.name for path in files]
    assert {"gpu-clusters-vfio.service", UNIT, *UNITS} <= set(names)
    for path in files:
        (units / path.name).write_text(path.read_text())
    drop_in = units / "libvirtd.service.d"
    drop_in.mkdir()
    (drop_in / "50-gpu-clusters.conf").write_text((FOLDER / "libvirt-ordering.conf").read_text())
    (units / "libvirtd.service").write_text("[Service]\nExecStart=/bin/true\n")
    for target in ("sysinit", "basic", "multi-user", "timers", "shutdown", "umount", "time-set"):
        (units / f"{target}.target").write_text("[Unit]\nDescription=stub\n")
    programs = {
        program
        for path in files
        for program in re.findall(r"(?m)^Exec\w+=[-@:+!]*(/\S+)", path.read_text())
    }
    assert {PROGRAM, vfio.SCRIPT_PATH} <= programs
    for program in {*programs, "/bin/true"}:
        path = root / program.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    analyze = folder / "usr/bin/systemd-analyze"
    done = subprocess.run(
        [analyze, "verify", f"--root={root}", "--man=no", *names, "libvirtd.service"],
        capture_output=True,
        text=True,
        env=libraries(folder),
    )
    if "error while loading shared libraries" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr.strip()}")
    said = [line for line in done.stderr.splitlines() if "gpu-clusters" in line]
    assert said == [], done.stderr
    assert done.returncode == 0, done.stderr


IMAGE = bytes(range(256)) * 4096
SECONDS = 120
"""For a download within this process, however slow the machine."""


class _Images(Answering):
    """Serves one image, in ranges, and ends the first answer early."""

    ranges: list[str]
    cut = 0

    def do_GET(self) -> None:
        begin = int((self.headers.get("Range") or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        type(self).ranges.append(self.headers.get("Range") or "")
        if self.path != "/fm.img":
            self.send_error(404)
            return
        if begin >= len(IMAGE):
            self.send_error(416)
            return
        rest = IMAGE[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.send_header("Content-Range", f"bytes {begin}-{len(IMAGE) - 1}/{len(IMAGE)}")
        self.end_headers()
        cut, type(self).cut = type(self).cut, 0
        self.wfile.write(rest[: len(rest) - cut])


@pytest.fixture
def url() -> Iterator[str]:
    """Of the image, for a real curl."""
    _Images.ranges, _Images.cut = [], 0
    with serving(_Images) as server:
        yield f"{server}/fm.img"


def fetch(folder: Path, url: str, sha256: str | None = None) -> subprocess.CompletedProcess[str]:
    wanted = sha256 or hashlib.sha256(IMAGE).hexdigest()
    argv = [folder / "images/fm.img", url, wanted, folder / "state", SECONDS]
    return subprocess.run(
        ["sh", str(FOLDER / "fetch_image.sh"), *map(str, argv)],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if "proxy" not in k.lower()},
    )


def test_a_download_goes_on_where_it_was_cut_off_and_is_verified(tmp_path: Path, url: str) -> None:
    image = tmp_path / "images/fm.img"
    _Images.cut = 100_000
    assert fetch(tmp_path, url).returncode == 14
    assert not image.exists()
    assert fetch(tmp_path, url).returncode == 0
    assert image.read_bytes() == IMAGE
    assert _Images.ranges == ["", f"bytes={len(IMAGE) - 100_000}-"]
    assert fetch(tmp_path, url).returncode == 0
    assert len(_Images.ranges) == 2, "what is there and right is not loaded again"
    assert len(list((tmp_path / "state/images").iterdir())) == 1


def test_a_download_that_was_cut_off_before_its_name_is_not_loaded_again(
    tmp_path: Path, url: str
) -> None:
    part = tmp_path / "images/fm.img.part"
    part.parent.mkdir()
    part.write_bytes(IMAGE)
    assert fetch(tmp_path, url).returncode == 0
    assert (tmp_path / "images/fm.img").read_bytes() == IMAGE


def test_an_image_with_another_checksum_is_not_kept(tmp_path: Path, url: str) -> None:
    done = fetch(tmp_path, url, "1" * 64)
    assert (done.returncode, done.stdout.strip()) == (11, hashlib.sha256(IMAGE).hexdigest())
    assert list((tmp_path / "images").iterdir()) == []
    assert fetch(tmp_path, f"{url}.none").returncode == 14
    assert not (tmp_path / "state/images").exists()


def test_an_image_by_path_is_verified_and_never_touched(tmp_path: Path) -> None:
    image = tmp_path / "images/fm.img"
    assert fetch(tmp_path, "-").returncode == 12
    image.parent.mkdir(exist_ok=True)
    image.write_bytes(b"another")
    assert fetch(tmp_path, "-").returncode == 11
    assert image.read_bytes() == b"another"
    image.write_bytes(IMAGE)
    assert fetch(tmp_path, "-").returncode == 0
