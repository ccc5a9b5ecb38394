"""The kubelet's protocols: what is committed is what protoc makes, and says what Kubernetes says."""

import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = Path("caas/kubelet_api")
FOLDERS = (FOLDER, Path("lab/kubelet_api"))
PROTOS = ("deviceplugin.proto", "podresources.proto")


def test_committed_code_is_what_protoc_makes_of_the_protos(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={PROJECT / FOLDER}",
            f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
            *PROTOS,
        ],
        check=True,
    )  # fmt: skip
    made = sorted(tmp_path.iterdir())
    assert len(made) == 4
    for file in made:
        for folder in FOLDERS:
            committed = PROJECT / folder / file.name
            assert committed.read_text() == file.read_text(), f"run `make protos`: {committed}"
