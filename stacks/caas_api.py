"""How tenants of a `caas` cluster reach its API: the certificate, and what stands before the Service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi

from components.caas.api import (
    ApiCertificate,
    ApiCertificateArgs,
    ApiExposure,
    ApiExposureArgs,
    Issuer,
    Pair,
)
from components.caas.programs import Programs
from components.kubernetes_objects import after
from gpuclusters.config.api import (
    ExternalExposure,
    GatewayExposure,
    IngressExposure,
    LoadBalancerExposure,
    ManagedCertificate,
)
from gpuclusters.config.caas import CaasConfig
from gpuclusters.config.secrets import CaasSecrets

_EVERYBODY = ("0.0.0.0/0", "::/0")


def certificate(
    config: CaasConfig,
    secrets: CaasSecrets,
    namespace: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> ApiCertificate | None:
    """The certificate that tenants see; None if somebody else shows one, or nobody."""
    exposure = config.api.exposure
    source: Issuer | Pair
    if (
        exposure is not None
        and not isinstance(exposure, ExternalExposure)
        and isinstance(exposure.certificate, ManagedCertificate)
    ):
        issuer = exposure.certificate
        source = Issuer(kind=issuer.issuer_kind.value, name=issuer.issuer, host=exposure.host)
    elif secrets.api_certificate is not None and secrets.api_private_key is not None:
        source = Pair(chain=secrets.api_certificate, private_key=secrets.api_private_key)
    else:
        return None
    return ApiCertificate(
        "api-certificate", ApiCertificateArgs(namespace=namespace, source=source), opts
    )


def ends_tls_itself(config: CaasConfig) -> bool:
    """Whether the API shows the certificate, if there is one, and nothing before it does."""
    return isinstance(config.api.exposure, LoadBalancerExposure | None)


def balanced(config: CaasConfig) -> Mapping[str, str] | None:
    """Annotations of the API's Service where it has an address of its own."""
    exposure = config.api.exposure
    return dict(exposure.annotations) if isinstance(exposure, LoadBalancerExposure) else None


def callers(config: CaasConfig) -> Sequence[str]:
    """Networks outside of the cluster from which the Service is called."""
    exposure = config.api.exposure
    if isinstance(exposure, LoadBalancerExposure):
        return _EVERYBODY
    if isinstance(exposure, ExternalExposure):
        return [str(proxy) for proxy in config.api.proxies]
    return ()


def expose(
    config: CaasConfig,
    shown: ApiCertificate | None,
    programs: Programs,
    namespace: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """What stands before the Service, where that is ours to declare."""
    exposure = config.api.exposure
    if not isinstance(exposure, IngressExposure | GatewayExposure) or shown is None:
        return
    ApiExposure(
        "api",
        ApiExposureArgs(
            kind=exposure.kind,
            class_name=(
                exposure.ingress_class
                if isinstance(exposure, IngressExposure)
                else exposure.gateway_class
            ),
            host=exposure.host,
            namespace=namespace,
            service=programs.api_service,
            service_port=programs.api_port,
            certificate=shown.secret,
            annotations=exposure.annotations,
        ),
        after(shown, opts=opts),
    )
