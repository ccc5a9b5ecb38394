"""`python -m caas.device_plugin`: the plugin of the host that NODE_NAME names."""

import asyncio
import os
from pathlib import Path

from caas import metrics, settings
from caas.cluster import Cluster
from caas.device_plugin.plugin import Kubelet, Plugin
from caas.program import Health, ended, pod_address, run, told_to_stop

PORT = 8082
_KUBELET = "/var/lib/kubelet"


async def serve() -> int:
    """Run until told to stop, or the plugin has ended."""
    configured = settings.load()
    name = os.environ.get("NODE_NAME", "")
    host = next((host for host in configured.hosts if host.name == name), None)
    if host is None:
        known = ", ".join(host.name for host in configured.hosts)
        raise settings.SettingsError(f"NODE_NAME is {name!r}; the settings know {known}")
    plugins = os.environ.get("KUBELET_DEVICE_PLUGINS", f"{_KUBELET}/device-plugins")
    listing = os.environ.get("KUBELET_POD_RESOURCES", f"{_KUBELET}/pod-resources/kubelet.sock")
    kubelet = Kubelet(device_plugins=Path(plugins), pod_resources=Path(listing))
    stopping = told_to_stop()
    async with Cluster() as cluster:
        resource, cdi_kind = configured.gpu_resource, configured.cdi_kind
        plugin = Plugin(cluster, host, kubelet, resource=resource, cdi_kind=cdi_kind)

        async def waits_for() -> str | None:
            return None if plugin.ready else "not registered, or the leases are not known"

        async with Health(pod_address(), PORT, metrics.DEVICE_PLUGIN, waits_for):
            work = asyncio.create_task(plugin.run())
            try:
                await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stopping.cancel()
                await ended(work)
    return 0


if __name__ == "__main__":
    run(serve)
