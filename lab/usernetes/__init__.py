"""GPUs of the lab's rootless nodes: what is inside their node containers, told to the lab's kubelets.

    start(folder, control_plane=lab, hosts=lab / "hosts", report=print)

One process looks at the simulated hosts and tells the kubelets, for the node of each Usernetes host, which
CDI names there are inside it, which runtime is its default, and whether other nodes reach its pods. With that
the kubelets run the device plugin's DaemonSet as it would run there: `device_plugin` is a real process that
speaks the kubelet's protocol where a real plugin would find its GPUs, and ends with the real one's words
where it would not. NVIDIA's sample and the programs of the ladder of proofs run as processes too.

Faults are injected by name while it runs (`faults`). What it does not do, so that nobody relies on it:

- No GPU calculates: vectors are added, and models trained, by this machine's processor, and both say so.
- No packet crosses a network. Pods reach each other over loopback, unless a fault says that they do not.
- No image is pulled or looked into: what a known image would run is known here by its name.
"""

from lab.usernetes.model import PluginSpec, UsernetesError
from lab.usernetes.process import start, status, stop

__all__ = ["PluginSpec", "UsernetesError", "start", "status", "stop"]
