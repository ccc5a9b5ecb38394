"""The stand-in for pulumi-kubernetes: calls of the engine, sent to plain objects or to Helm releases."""

import threading
from collections.abc import Callable
from typing import TypeVar

from engine.answers import Checked, ProviderError
from engine.stand_ins import calls
from engine.stand_ins.engine_log import EngineLog
from engine.stand_ins.kubernetes import checking, kubeconfig, options, releases
from engine.stand_ins.kubernetes.applying import field_manager
from engine.stand_ins.kubernetes.client import Api, ApiError, Unreachable
from engine.stand_ins.kubernetes.diffing import Comparison, diff
from engine.stand_ins.kubernetes.helm import Helm
from engine.stand_ins.kubernetes.objects import (
    Object,
    is_patch,
    kind_of,
    live_object,
    recorded_inputs,
    to_object,
)
from engine.stand_ins.kubernetes.options import Options
from engine.stand_ins.kubernetes.releases import Releases
from engine.stand_ins.kubernetes.resources import Resources
from engine.stand_ins.kubernetes.scopes import Scopes
from engine.stand_ins.values import Properties
from engine.values import contains_unknown

_Result = TypeVar("_Result")


class KubernetesProvider(calls.Provider):
    """Objects of one cluster, by server-side apply."""

    name = "kubernetes"
    version = "4.34.2"
    stands_in_for = "pulumi-kubernetes 4.34.2"

    def __init__(self, engine: EngineLog) -> None:
        super().__init__(engine)
        self._options = Options()
        self._scopes = Scopes()
        self._cancelled = threading.Event()
        self._unreachable = ""
        self._cluster: Resources | None = None
        self._helm: Releases | None = None

    def check_config(self, inputs: Properties) -> Checked:
        return options.check(inputs)

    def diff_config(self, olds: Properties, news: Properties) -> calls.Diff:
        """Another cluster means another provider."""
        return options.diff(olds, news)

    def configure(self, options_: Properties) -> None:
        """Read the kubeconfig; a cluster that does not answer is told once and remembered."""
        self._options = options.parse(options_)
        cluster = kubeconfig.load(kubeconfig.find(self._options.kubeconfig))
        api = Api(cluster)
        self._cluster = Resources(
            api, self._options, self.engine, self._cancelled, cluster.namespace
        )
        helm = Helm(cluster, self._cancelled)
        self._helm = Releases(helm, cluster.namespace)
        try:
            api.request("GET", "/version")
        except (Unreachable, ApiError) as error:
            self._unreachable = str(error)
            self.engine.warning(
                f"{error}. Previews compare with the state only, and what needs the cluster will fail"
            )

    def check(self, call: calls.Call) -> Checked:
        if call.resource.type == releases.TOKEN:
            return self._releases.check(call)
        checked = checking.check(call)
        if checked.failures:
            return checked
        obj = to_object(checked.inputs)
        if obj["kind"] == "CustomResourceDefinition":
            self._scopes.plan(obj)
        if self._scopes.namespaced(kind_of(obj), self._reachable_api()):
            namespace = self._resources.default_namespace
            return Checked(checking.with_namespace(checked.inputs, namespace))
        return checked

    def diff(self, call: calls.Call) -> calls.Diff:
        """Compare the state with new inputs, with the server's help where it can be had."""
        if call.resource.type == releases.TOKEN:
            return self._releases.diff(call)
        new = to_object(call.news)
        old_inputs = recorded_inputs(call.olds) or to_object(call.old_inputs)
        manager = field_manager(call.olds, new)
        api = self._reachable_api()

        def dry_run(obj: Object) -> Object | None:
            try:
                return self._resources.dry_run(obj, manager)
            except Unreachable as error:
                self.engine.warning(f"compared with the state only: {error}", call.resource.urn)
                return None

        comparison = Comparison(
            live=live_object(call.olds),
            old_inputs=old_inputs,
            new_inputs=new,
            namespaced=self._scopes.namespaced(kind_of(new), api),
            default_namespace=self._resources.default_namespace,
            patch=is_patch(call.resource.type, new),
        )
        possible = api is not None and not contains_unknown(new)
        return diff(
            comparison,
            self._options.mutability,
            call.ignore_changes,
            dry_run if possible else None,
        )

    def create(self, call: calls.Call) -> calls.Found:
        if call.resource.type == releases.TOKEN:
            if not call.preview:
                self._require_cluster()
            return self._releases.create(call)
        found = self._tried(call, lambda: self._resources.create(call, to_object(call.news)))
        return found or calls.Found("", dict(call.news))

    def update(self, call: calls.Call) -> Properties:
        if call.resource.type == releases.TOKEN:
            if not call.preview:
                self._require_cluster()
            return self._releases.update(call)
        outputs = self._tried(call, lambda: self._resources.update(call, to_object(call.news)))
        return outputs or dict(call.news)

    def _tried(self, call: calls.Call, work: Callable[[], _Result]) -> _Result | None:
        """What the cluster makes of it; None for a preview that it cannot help with."""
        if call.preview and (self._unreachable or contains_unknown(call.news)):
            return None
        self._require_cluster()
        try:
            return work()
        except Unreachable as error:
            if not call.preview:
                raise
            self.engine.warning(f"inputs shown as they are: {error}", call.resource.urn)
            return None

    def delete(self, call: calls.Call) -> None:
        if self._unreachable and self._options.delete_unreachable:
            self.engine.warning(
                f"the cluster does not answer and deleteUnreachable is set: {call.id} leaves the state",
                call.resource.urn,
            )
            return
        self._require_cluster()
        if call.resource.type == releases.TOKEN:
            self._releases.delete(call)
        else:
            self._resources.delete(call)

    def read(self, call: calls.Call) -> calls.Found | None:
        if not call.old_inputs:
            raise ProviderError(
                f"{call.resource.type} cannot be imported by the kubernetes stand-in ({call.id});"
                " install the Pulumi CLI to import it"
            )
        if self._unreachable and self._options.delete_unreachable:
            return None
        self._require_cluster()
        if call.resource.type == releases.TOKEN:
            return self._releases.read(call)
        return self._resources.read(call)

    def cancel(self) -> None:
        self._cancelled.set()
        if self._helm is not None:
            self._helm.helm.stop()

    def close(self) -> None:
        if self._helm is not None:
            self._helm.helm.close()

    @property
    def _resources(self) -> Resources:
        if self._cluster is None:
            raise ProviderError("the kubernetes stand-in was not configured before it was used")
        return self._cluster

    @property
    def _releases(self) -> Releases:
        if self._helm is None:
            raise ProviderError("the kubernetes stand-in was not configured before it was used")
        return self._helm

    def _reachable_api(self) -> Api | None:
        return None if self._unreachable else self._resources.api

    def _require_cluster(self) -> None:
        if self._cancelled.is_set():
            raise calls.Cancelled("stopped before anything was done: the run was cancelled")
        if self._unreachable:
            raise ProviderError(
                f"{self._unreachable}. If the cluster is gone for good, take what was in it out of the state "
                "with the provider option deleteUnreachable (or PULUMI_K8S_DELETE_UNREACHABLE=true)"
            )
