"""`python -m caas.device_plugin`: the plugin of the host that NODE_NAME names."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

from caas import logs, metrics, settings
from caas.cluster import Cluster, ClusterError
from caas.device_plugin.plugin import Kubelet, Plugin
from caas.health import Health

PORT = 8082
_log = logging.getLogger(__name__)


async def serve() -> None:
    """Run until SIGTERM or SIGINT."""
    configured = settings.load()
    name = os.environ.get("NODE_NAME", "")
    host = next((host for host in configured.hosts if host.name == name), None)
    if host is None:
        known = ", ".join(host.name for host in configured.hosts)
        raise settings.SettingsError(f"NODE_NAME is {name!r}; the settings know {known}")
    kubelet = Kubelet(
        device_plugins=Path(
            os.environ.get("KUBELET_DEVICE_PLUGINS", "/var/lib/kubelet/device-plugins")
        ),
        pod_resources=Path(
            os.environ.get("KUBELET_POD_RESOURCES", "/var/lib/kubelet/pod-resources/kubelet.sock")
        ),
    )
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Cluster() as cluster:
        plugin = Plugin(
            cluster,
            host,
            kubelet,
            resource=configured.gpu_resource,
            cdi_kind=configured.cdi_kind,
        )

        async def waits_for() -> str | None:
            return None if plugin.ready else "not registered, or the leases are not known"

        health = Health(
            os.environ.get("POD_IP", "127.0.0.1"),
            PORT,
            metrics.DEVICE_PLUGIN,
            waits_for,
        )
        async with health:
            work = asyncio.create_task(plugin.run())
            told = asyncio.create_task(stop.wait())
            try:
                await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                told.cancel()
                work.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await work


def main() -> int:
    """Run; the exit code."""
    logs.configure()
    try:
        asyncio.run(serve())
    except (settings.SettingsError, ClusterError, OSError) as error:
        _log.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
