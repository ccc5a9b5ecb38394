"""The service VM as documents, which libvirt, cloud-init, systemd and a shell read, and as decisions."""

import base64
import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from gpuclusters.compat.platforms import PRESETS, Platform
from gpuclusters.core import scripts
from gpuclusters.core.converge import converge
from gpuclusters.core.finding import Refused
from gpuclusters.fabric import manager_config as fabric_manager_config
from gpuclusters.fabric.answers import FabricError
from gpuclusters.fabric.model import LivePartition
from gpuclusters.host.model import PciFunction, sha256_of
from gpuclusters.rootless import files as rootless
from gpuclusters.service_vm import cloud_init, domain_xml
from gpuclusters.service_vm.cloud_init import Seed
from gpuclusters.service_vm.decide import PROGRAM, UNIT, UNITS, Guest, Health, LiveVm, parsed_guest
from gpuclusters.service_vm.domain_xml import differences
from gpuclusters.service_vm.host import ServiceVmCapability, _tar
from gpuclusters.service_vm.model import LAB_IMAGE, ServiceVmInputs
from gpuclusters.vfio import decide as vfio
from lab.hosts.service_vm import libvirt
from lab.tools.debian_packages import unpacked
from tests.fixtures.debian import libraries
from tests.fixtures.loopback import Answering, serving
from tests.fixtures.tables import beside
from tests.fixtures.waiting import Waiting

PRESET = PRESETS[Platform.SUPERMICRO_HGX_H100]
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
CASES = beside(__file__, "service_vm.yaml")
PACKAGES = {
    "repository": "deb https://packages.example.com/apt ./",
    "key": "-----BEGIN PGP PUBLIC KEY BLOCK-----\nxx\n",
    "proxy": "http://192.168.250.1:3142",
    "packages": {"nvidia-fabricmanager-595": "595.58.03-1"},
}


def stated(text: str) -> dict[str, str]:
    """Keys and values of a fabricmanager.cfg."""
    lines = [line.partition("=") for line in text.splitlines() if not line.startswith("#")]
    return {key: value for key, _, value in lines}


def inputs(**changes: Any) -> ServiceVmInputs:
    values: dict[str, Any] = {
        "connection": {"host": "hgx-01", "address": "10.0.0.11", "host_key": HOST_KEY},
        "switches": PRESET.switches,
        "extra_functions": PRESET.extra_functions,
        "gpus": {str(module): address for module, address in PRESET.gpus.items()},
        "image": {"path": "/srv/fm.img", "sha256": "0" * 64},
        "fabric_manager": {"version": "595.58.03"},
    }
    return ServiceVmInputs.model_validate(values | changes, by_name=True)


def seed(vm: ServiceVmInputs) -> Seed:
    return cloud_init.seed(vm, scripts.texts("service_vm")["fabric-manager.sh"])


def domain(vm: ServiceVmInputs) -> ET.Element:
    return domain_xml.domain(vm, seed_digest=seed(vm).digest)


def test_uuids_stay_so_that_libvirt_takes_a_new_definition() -> None:
    one, other = domain(inputs()), domain(inputs(memory_mib=8192))
    assert one.findtext("uuid") == other.findtext("uuid")


@pytest.mark.parametrize(("changes", "words"), CASES["refused"])
def test_what_cannot_be_is_refused_before_a_host_is_asked(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        inputs(**changes)


def test_what_libvirt_adds_by_itself_is_no_difference() -> None:
    want = domain(inputs())
    kept = libvirt.complete(want)
    assert 'machine="pc-q35-10.1"' in kept
    assert not [*differences(want, ET.fromstring(kept))]
    assert not [*differences(want, ET.fromstring(libvirt.running(kept, 7)))]
    in_gib = kept.replace('<memory unit="KiB">4194304<', '<memory unit="GiB">4<')
    assert not [*differences(want, ET.fromstring(in_gib))]


@pytest.mark.parametrize(("old", "new", "words"), CASES["changed"])
def test_what_somebody_changed_is_said_in_words(old: str, new: str, words: str) -> None:
    want = domain(inputs())
    live = libvirt.complete(want)
    assert old in live
    found = [*differences(want, ET.fromstring(live.replace(old, new)))]
    assert any(words in one for one in found), found


def test_a_custom_table_becomes_a_file_that_the_fabric_manager_is_pointed_to() -> None:
    vm = inputs(fabric_manager={"version": "595.58.03", "partitions": {"0": [1, 2], "1": [3]}})
    files = {f["path"]: f for f in yaml.safe_load(seed(vm).user_data)["write_files"]}
    config = files[fabric_manager_config.CONFIG_PATH]["content"]
    path = stated(config)["SHARED_PARTITION_DEFINITION_FILE"]
    assert json.loads(files[path]["content"])["partitionInfo"] == [
        {"partitionId": 0, "gpuModuleIds": [1, 2]},
        {"partitionId": 1, "gpuModuleIds": [3]},
    ]


def test_another_seed_is_another_instance_and_the_same_seed_is_not() -> None:
    one, same, other = seed(inputs()), seed(inputs(memory_mib=8192)), seed(inputs(name="fm"))
    assert one == same
    ids = {yaml.safe_load(s.meta_data)["instance-id"] for s in (one, other)}
    assert len(ids) == 2


def test_packages_are_pinned_and_come_through_the_hosts_proxy() -> None:
    document = yaml.safe_load(seed(inputs(packages=PACKAGES)).user_data)
    assert document["packages"] == [["nvidia-fabricmanager-595", "595.58.03-1"]]
    assert document["apt"]["https_proxy"] == "http://192.168.250.1:3142"


def test_nobody_enters_with_a_password_and_nothing_secret_is_in_the_seed() -> None:
    made = seed(inputs())
    document = yaml.safe_load(made.user_data)
    assert document["ssh_pwauth"] is False
    text = "".join(made.files.values()).lower()
    for word in ("passwd", "password", "private", "hashed"):
        assert word not in text


class Killed(Exception):
    """The step was cut off here."""


class World(Waiting):
    """A host, its VM and its fabric manager; `fuse` steps from now it is cut off, after the step."""

    target = "hgx-01 (10.0.0.11:22)"

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.vm = inputs(**changes)
        self.live = LiveVm(boot_id="b")
        self.done: list[str] = []
        self.fuse, self.starts, self.obeys = -1, 0, True
        self.guest: Guest | None = None
        """What the VM says over SSH; None: what it was made with."""
        self.codes = [0]
        """What the fabric manager answers; the last one again and again."""
        self.active: tuple[int, ...] = ()
        self.lists: list[tuple[int, ...]] = []
        self.users: dict[str, tuple[int, ...]] = {}

    def look(self) -> LiveVm:
        return self.live

    def state(self) -> str | None:
        return self.live.state

    def ask_guest(self) -> Guest:
        return self.guest or Guest("", self.vm.fabric_manager.version, "active")

    def change(self, **changes: Any) -> None:
        self.live = self.live.model_copy(update=changes)

    def _did(self, what: str, **changes: Any) -> None:
        self.done.append(what)
        self.change(**changes)
        self.fuse -= 1
        if self.fuse == 0:
            raise Killed(what)

    def fetch_image(self, seconds: int) -> str | None:
        self._did("image", image_verified=True)
        return None

    def install(self, files: Mapping[str, str]) -> None:
        self._did("files", files={p: sha256_of(t.encode()) for p, t in files.items()}, disabled=())

    def write_seed(self, seed: Seed) -> None:
        self._did("seed", seed=seed.digest)

    def define(self, root: ET.Element) -> None:
        xml = domain_xml.text(root)
        if root.tag == "network":
            assert not self.live.running
            self._did("network", network=xml, network_active=True, network_autostart=True)
            return
        kept = libvirt.complete(ET.fromstring(xml))
        self._did("domain", domain=kept, autostart=True, state=self.live.state or "shut off")

    def make_disk(self) -> None:
        assert not self.live.running
        self._did("disk", backing=self.vm.image.file)

    def power(self, word: str) -> None:
        if word == "off":
            self._did("off", state="shut off", running_domain=None, number="-")
            return
        self.starts += 1
        running = libvirt.running(self.live.domain or "", self.starts)
        self._did("start", state="running", running_domain=running, number=str(self.starts))

    def shut_down(self, seconds: int) -> bool:
        if self.obeys:
            self._did("shutdown", state="shut off", running_domain=None, number="-")
        return self.obeys

    def remove(self, *, network: bool) -> None:
        self._did("remove", domain=None, state=None, backing=None, seed=None, files={})

    def set_activated(self, partition_ids: Sequence[int]) -> None:
        self.lists.append(tuple(partition_ids))

    def partitions(self) -> Mapping[int, LivePartition]:
        code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        if code or self.live.state != "running":
            raise FabricError(self.target, "list", code or -9, "Failed to get partition list.")
        return {i: LivePartition(i, (i,), i in self.active) for i in range(1, 9)}

    def inspect(self, addresses: Sequence[str]) -> Mapping[str, PciFunction]:
        return {a: PciFunction(a, True, "1", "vfio-pci", self.users.get(a, ())) for a in addresses}

    def capability(self) -> ServiceVmCapability:
        """What a resource that has made what runs does."""
        host: Any = self
        before = {"run": self.live.run} if self.live.running else {}
        made = ServiceVmCapability(self.vm, host, before, self, self)
        made.vm = made.fabric = made.pci = host
        return made

    def ensure(self, **changes: Any) -> LiveVm:
        """Bring the host to its inputs, or to others."""
        self.vm = inputs(**changes) if changes else self.vm
        capability = self.capability()
        converge(capability, self)
        live = capability.prove(capability.observe())
        assert [*capability.findings(live)] == []
        return live

    def drift(self) -> list[str]:
        capability = self.capability()
        return [one.code for one in capability.findings(capability.seen())]


MADE = ["image", "files", "seed", "network", "disk", "domain", "start"]
"""The steps to a VM, in an order in which nothing is missing."""
NEWER = {"fabric_manager": {"version": "595.91.07"}}


def served() -> World:
    """A host whose VM serves; steps are counted from now on."""
    world = World()
    assert world.ensure().health is Health.READY
    assert world.done == MADE
    world.done.clear()
    return world


@pytest.mark.parametrize("story", CASES["stories"], ids=lambda story: story["name"])
def test_a_vm_with_a_past_becomes_what_is_declared_or_stays(story: dict[str, Any]) -> None:
    world = World() if story.get("new") else served()
    declared = world.vm
    for run in story["runs"]:
        world.vm = declared
        world.done.clear()
        world.change(**run.get("live", {}))
        if "edited" in run:
            world.change(domain=(world.live.domain or "").replace(*run["edited"]))
        for name, value in run.get("world", {}).items():
            setattr(world, name, value)
        if "guest" in run:
            world.guest = Guest(*run["guest"])
        assert set(run.get("drift", ())) <= set(world.drift() if "drift" in run else ())
        remove = world.capability().remove
        act = remove if run.get("do") == "remove" else partial(world.ensure, **run.get("to", {}))
        if "refused" in run:
            with pytest.raises(Refused, match=run["refused"]):
                act()
        elif live := act():
            assert live.health is Health[run.get("health", "READY")]
        assert world.done == run.get("done", world.done)
        assert len(world.lists) == run.get("lists", len(world.lists))
        assert re.search(run.get("notes", ""), "\n".join(world.notes))


@pytest.mark.parametrize(
    ("begin", "changes", "steps"),
    [(World, {}, MADE), (served, NEWER, ["seed", "shutdown", "domain", "start"])],
    ids=["made", "changed"],
)
def test_cut_off_after_any_step_the_next_run_does_the_rest_once(
    begin: Callable[[], World], changes: dict[str, Any], steps: list[str]
) -> None:
    for fuse in range(1, len(steps) + 1):
        world = begin()
        world.fuse = fuse
        with pytest.raises(Killed):
            world.ensure(**changes)
        assert world.ensure(**changes).health is Health.READY
        assert world.done == steps, fuse
        assert world.live.run == f"b/{world.starts}"


@pytest.mark.parametrize(("code", "console", "service", "words"), CASES["silent"])
def test_each_cause_of_a_silent_fabric_manager_has_its_own_words(
    code: int, console: str, service: str | None, words: str
) -> None:
    settings = {"version": "595.58.03", "restart": False}
    world = World(fabric_manager=settings, boot_timeout_seconds=30)
    world.codes, world.guest = [code], Guest("Connection refused")
    more = "over SSH the VM says nothing (Connection refused)"
    if service:
        world.guest = Guest("", "595.58.03", service, ("one", "failed to find all NVSwitches"))
        more = "its log ends with: one | failed to find all NVSwitches"
    world.change(console=console)
    with pytest.raises(Refused, match=words) as failed:
        world.ensure()
    assert "hgx-01 (10.0.0.11:22): service VM fabric-manager" in str(failed.value)
    assert more in str(failed.value)


@pytest.mark.parametrize(("output", "wanted"), CASES["guest"])
def test_the_answer_of_the_vm_is_read_whatever_part_of_it_is_missing(
    output: str, wanted: list[Any]
) -> None:
    problem, version, service, log = wanted
    assert parsed_guest(output) == Guest(problem, version, service, tuple(log))


def test_libvirt_that_cannot_be_asked_is_no_missing_vm() -> None:
    world = World()
    world.live = LiveVm(problem="Connection refused")
    for act in (world.ensure, world.drift, world.capability().remove):
        with pytest.raises(Refused, match="systemctl start libvirtd"):
            act()


def test_the_domain_of_a_supermicro_hgx_h100_is_the_one_that_libvirt_checked() -> None:
    vm = inputs(image=dict(LAB_IMAGE))
    network = domain_xml.text(domain_xml.network(vm.network, host="hgx-01"))
    checked = (Path(__file__).parent / "service_vm.xml").read_text()
    assert f"{domain_xml.text(domain(vm))}\n{network}" == checked


def test_the_page_shows_the_configuration_of_the_fabric_manager() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/service-vm.md").read_text()
    assert fabric_manager_config.render(inputs(image=dict(LAB_IMAGE)).fabric_manager) in page


def test_bridges_of_a_board_without_switch_functions_get_their_modules() -> None:
    vm = inputs(switches=[], extra_functions=["0000:05:00.0", "0000:06:00.0"])
    files = {f["path"]: f for f in yaml.safe_load(seed(vm).user_data)["write_files"]}
    assert files["/etc/modules-load.d/gpu-clusters.conf"]["content"] == "ib_umad\nmlx5_ib\n"


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
    # For an account that runs Docker without root; what comes before it is not ours.
    names.append(rootless.BOOT_UNIT)
    (units / rootless.BOOT_UNIT).write_text(rootless.boot_unit("ubuntu"))
    assert "--machine=ubuntu@.host restart docker.service" in rootless.boot_unit("ubuntu")
    for before in ("nvidia-cdi-refresh", "systemd-logind"):
        (units / f"{before}.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/true\n")
    drop_in = units / "libvirtd.service.d"
    drop_in.mkdir()
    (drop_in / "50-gpu-clusters.conf").write_text((FOLDER / "libvirt-ordering.conf").read_text())
    (units / "libvirtd.service").write_text("[Service]\nExecStart=/bin/true\n")
    for target in ("sysinit", "basic", "multi-user", "timers", "shutdown", "umount", "time-set"):
        (units / f"{target}.target").write_text("[Unit]\nDescription=stub\n")
    programs = {
        program
        for path in units.glob("*.service")
        for program in re.findall(r"(?m)^Exec\w+=[-@:+!]*(/\S+)", path.read_text())
    }
    assert {PROGRAM, vfio.SCRIPT_PATH} <= programs
    for program in {*programs, "/usr/bin/systemctl"}:
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
    image.rename(f"{image}.part")
    assert fetch(tmp_path, url).returncode == 0
    assert image.read_bytes() == IMAGE
    assert _Images.ranges[2:] == [f"bytes={len(IMAGE)}-"], "nor what was cut off before its name"
    assert len(list((tmp_path / "state/images").iterdir())) == 1


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
