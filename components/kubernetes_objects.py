"""How the Kubernetes objects of a stack are made: one provider, one field manager.

An object that an `up` made and lost (it was killed before the state had it) is taken up again by the next
`up`: create is an apply, and whoever applies has the same name in every run. Left alone, the provider draws
a new name whenever it has no state, and then the lost object's fields belong to somebody else.

The provider cannot tell a stranger's object of the same name from a lost one. An apply is never forced, so
a field that somebody else has set to another value ends the create with a conflict that names the field
and its manager. What nobody else has set is added to the object.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

FIELD_MANAGER = "gpu-clusters"
PATCH_MANAGER = "gpu-clusters-patch"
"""Of fields in objects that are not the program's. A manager of its own: what one apply leaves out, the
manager gives up, and the program's providers apply to nodes as `gpu-clusters` too."""
ANNOTATION = "pulumi.com/patchFieldManager"
DASHBOARDS = Path(__file__).with_name("dashboards")
PART_OF = {"app.kubernetes.io/part-of": "gpu-clusters"}
"""Label of what belongs to the clusters' own programs and dashboards."""


def after(
    *resources: pulumi.Resource | None, opts: pulumi.ResourceOptions | None = None
) -> pulumi.ResourceOptions:
    """Options of what waits for others; a component stands for all its children, on both sides."""
    there = [one for one in resources if one is not None]
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=there))


def kept(opts: pulumi.ResourceOptions, *, protect: bool) -> pulumi.ResourceOptions:
    """Options of what cannot be made again: Pulumi refuses to delete it, where that is asked for."""
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(protect=protect or None))


def dashboard(file: str) -> str:
    """A dashboard in one line: a ConfigMap has a limit, and nobody reads it there."""
    document = json.loads((DASHBOARDS / file).read_text(encoding="utf-8"))
    return json.dumps(document, separators=(",", ":"), sort_keys=True)


def pod_security(level: str) -> dict[str, str]:
    """Labels of a namespace; under the CIS profile it is restricted unless it says otherwise."""
    return {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")}


def inside(
    kubeconfig: pulumi.Input[str],
    *,
    identifier: str | None,
    mutable_settings: bool = False,
    delete_unreachable: bool | None = None,
) -> pulumi.ResourceOptions:
    """Options for components whose objects belong into the cluster of `kubeconfig`, content or path.

    Another `identifier` is another cluster (None: address and CA tell); `mutable_settings` change
    ConfigMaps and Secrets in place; `delete_unreachable`: a cluster that is gone took its objects along.
    """
    provider = kubernetes.Provider(
        "cluster",
        kubeconfig=kubeconfig,
        cluster_identifier=identifier,
        enable_server_side_apply=True,
        enable_config_map_mutable=mutable_settings or None,
        enable_secret_mutable=mutable_settings or None,
        delete_unreachable=delete_unreachable,
        upsert_existing_objects=True,
    )
    return pulumi.ResourceOptions(providers=[provider], transformations=[_state_manager])


def _state_manager(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult | None:
    # What Helm makes has Helm for its manager.
    if not args.type_.startswith("kubernetes:") or "metadata" not in args.props:
        return None
    manager = PATCH_MANAGER if args.type_.endswith("Patch") else FIELD_MANAGER
    metadata = _annotated(args.props["metadata"], manager)
    return pulumi.ResourceTransformationResult({**args.props, "metadata": metadata}, args.opts)


def _annotated(metadata: Any, manager: str) -> Any:
    """A copy of an object's metadata, a mapping or one of the SDK's types, that names its manager."""
    if isinstance(metadata, Mapping):
        annotations = {**(metadata.get("annotations") or {}), ANNOTATION: manager}
        return {**metadata, "annotations": annotations}
    stated = copy.copy(metadata)
    stated.annotations = {**(metadata.annotations or {}), ANNOTATION: manager}
    return stated
