"""Whether a containerd that answers serves kubelets: it starts without that plugin when it cannot load it."""

import subprocess
from collections.abc import Sequence

_TYPE = "io.containerd.grpc.v1"
_ID = "cri"
_WATCHES = "inotify"
_UNASKED = "containerd does not say whether it serves kubelets"
_SECONDS = 120


def fault(ctr: Sequence[str]) -> str:
    """Why containerd serves no kubelet, in its words; empty if it does. `ctr` is its command line.

    A value that its plugin refuses is such a reason, and that the machine has no watch of files left.
    """
    done = subprocess.run(
        [*ctr, "plugins", "ls", "--detailed", f"type=={_TYPE},id=={_ID}"],
        capture_output=True, text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    if done.returncode:
        return f"{_UNASKED}: {done.stderr.strip()}"
    return read(done.stdout)


def read(listed: str) -> str:
    """The same out of what `ctr plugins ls --detailed` says of that plugin."""
    lines = [line.strip() for line in listed.splitlines()]
    words = [line.partition("Message:")[2].strip() for line in lines if line.startswith("Message:")]
    if not words:
        return ""
    said = f"containerd runs without its plugin {_ID}: {' / '.join(words)}"
    return f"{said}; raise the setting fs.inotify.max_user_instances" if passes(said) else said


def passes(words: str) -> bool:
    """Whether the fault may go by itself.

    Others give their watches back when they end, and one that did not answer may at another time.
    """
    return _WATCHES in words or words.startswith(_UNASKED)
