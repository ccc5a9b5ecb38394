"""Admission policies and their bindings."""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import (
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)


# Rendered in Kubernetes' own spelling, which the SDK takes as it is but has no type for.
def bound(
    name: str, policy: str, spec: Any, binding: Any, parent: pulumi.Resource
) -> ValidatingAdmissionPolicyBinding:
    """A policy and its binding, which is what must be there for the policy to hold.

    Args:
        name: of the resource; the binding's ends with `-binding`.
        policy: name of both objects.
        spec: of the policy.
        binding: spec of the binding.
        parent: of both resources.
    """
    declared = ValidatingAdmissionPolicy(
        name,
        metadata={"name": policy},
        spec=spec,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return ValidatingAdmissionPolicyBinding(
        f"{name}-binding",
        metadata={"name": policy},
        spec=binding,
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[declared]),
    )
