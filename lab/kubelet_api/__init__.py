"""The kubelet's device-plugin and pod-resources protocols, made by protoc: `make protos`."""

import os

# gRPC's core writes to standard error by itself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
