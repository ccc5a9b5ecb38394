"""A cluster whose API server may be away for a while."""

from __future__ import annotations

from gpuclusters.core.errors import CommandFailedError, UnreachableError
from gpuclusters.gpu_operator.readiness import Snapshot, read
from gpuclusters.kube.objects import KubernetesObjects

_STARTING = ("status 500", "status 502", "status 503", "status 504", "status 429")


class PatientCluster:
    """`Watched` of the cluster that a kubeconfig names."""

    def __init__(self, kubeconfig: str) -> None:
        self._cluster = KubernetesObjects(kubeconfig)

    @property
    def target(self) -> str:
        """URL of the API server."""
        return self._cluster.target

    def snapshot(self, namespace: str) -> Snapshot | str:
        """What it shows; the reason if nobody answers, or one that is not up yet.

        Raises:
            AdapterError: it answers and refuses: no patience helps.
        """
        try:
            return read(self._cluster, namespace)
        except UnreachableError as error:
            return error.problem
        except CommandFailedError as error:
            if error.problem.startswith(_STARTING):
                return error.problem
            raise
