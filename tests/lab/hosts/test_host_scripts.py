"""The product's look at Kata, run for real on files as kata-deploy leaves them."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.kubelet.kata_installer import DRIVER, GUEST_IMAGE, GUEST_IMAGE_BYTES, installed_files

PRODUCT = Path(__file__).resolve().parents[3] / "gpuclusters"
VERIFY = PRODUCT / "kata/scripts/verify-kata.sh"


HANDLER = "kata-qemu-nvidia-gpu"
DROP_IN = "[runtime]\ncreate_container_timeout = 1200\n"
SETTINGS = {"suffix": "", "distribution": "k8s", "shims": ["qemu-nvidia-gpu"]}


def checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Host:
    """A folder with what the installer makes, all of its paths below it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.prefix = root / "opt/kata"
        self.image = self.prefix / "share/kata-containers" / GUEST_IMAGE
        self.folder = self.prefix / "share/defaults/kata-containers/runtimes/qemu-nvidia-gpu"
        self.configuration = self.folder / "configuration-qemu-nvidia-gpu.toml"
        self.drop_in = self.folder / "config.d/50-user-overrides.toml"
        self.containerd = root / "etc/containerd/conf.d/kata-deploy.toml"
        for path, content in installed_files(SETTINGS, {"dropin-qemu-nvidia-gpu.toml": DROP_IN}):
            file = root / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((content or b"").replace(b"/opt/kata", str(self.prefix).encode()))

    def verify(
        self, *, driver: str = DRIVER, image: str = "-", handler: str = HANDLER
    ) -> subprocess.CompletedProcess[str]:
        shim = (handler, self.prefix, self.configuration, checksum(DROP_IN.encode()))
        return subprocess.run(
            ["sh", VERIFY, *shim, driver, image, self.containerd.parent],
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_machine_as_the_installer_leaves_it_is_right(host: Host) -> None:
    for image in ("-", checksum(GUEST_IMAGE_BYTES)):
        done = host.verify(image=image)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"{HANDLER}: guest image {host.image}\n"
    assert host.verify(driver="-").returncode == 0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda h: h.containerd.unlink(), "containerd is not told of the handler"),
        (lambda h: h.configuration.unlink(), "kata-deploy has not installed the shim"),
        (lambda h: h.drop_in.unlink(), "VMs boot with Kata's own timeouts"),
        (lambda h: h.drop_in.write_text("x"), "is not as declared"),
        (lambda h: h.image.unlink(), "is not there"),
        (
            lambda h: h.configuration.write_text(f'image = "{h.image}"\n'),
            "nothing verifies the guest image",
        ),
        (lambda h: (h.prefix / "versions.yaml").unlink(), "has the driver (unknown)"),
    ],
)
def test_what_is_missing_on_a_machine_is_named(
    host: Host, spoil: Callable[[Host], object], said: str
) -> None:
    spoil(host)
    done = host.verify()
    assert done.returncode == 1
    assert said in done.stderr
    assert all("; " in line for line in done.stderr.splitlines()), "what to do stands beside it"


def test_other_versions_are_refused_and_all_findings_come_at_once(host: Host) -> None:
    done = host.verify(driver="595.91.07")
    assert done.returncode == 1
    assert f"has the driver {DRIVER}, while the fabric manager is of 595.91.07" in done.stderr
    host.image.write_bytes(b"another")
    done = host.verify(image=checksum(GUEST_IMAGE_BYTES))
    assert done.returncode == 1
    assert "kata.guest-image-sha256" in done.stderr
    host.drop_in.unlink()
    assert len(host.verify(driver="1.2.3", handler="kata-other").stderr.splitlines()) == 3
