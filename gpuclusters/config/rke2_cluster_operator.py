"""`operator` of an `rke2` cluster: the GPU Operator, its chart, and values of your own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from gpuclusters.config.base import DnsLabel, Flag, Section, Text, refusal
from gpuclusters.config.charts import FileChart, LabChart, RegistryChart

_VERSION = re.compile(r"v[0-9]{2}\.[0-9]{1,2}\.[0-9]{1,3}")


def _version(value: str) -> str:
    if not _VERSION.fullmatch(value):
        raise refusal(
            "is not a release of the GPU Operator",
            "write all of its numbers with the leading v, like v26.7.0",
        )
    return value


OperatorVersion = Annotated[Text, AfterValidator(_version)]
OperatorChart = Annotated[RegistryChart | FileChart | LabChart, Field(discriminator="source")]


class Operator(Section):
    """The GPU Operator as a Helm release."""

    version: OperatorVersion
    """Release, with the leading v. Another one upgrades it in place, by one major at a time."""
    chart: OperatorChart | None = None
    """Where the chart comes from; by default the lab's in the lab, else NVIDIA's repository."""
    namespace: DnsLabel = "gpu-operator"
    """Its namespace, made by this program with the Pod Security level privileged."""
    node_feature_discovery: Flag = True
    """nfd.enabled: whether the chart brings Node Feature Discovery. Off if the cluster has one."""
    nri_plugin: Flag = False
    """cdi.nriPluginEnabled: GPUs without any change of containerd. Experimental says NVIDIA."""
    values: Mapping[Text, Any] = Field(default_factory=dict)
    """More values of the chart, merged over what this program derives. Every key is checked against the
    chart's own, which accepts typos silently."""
