"""Two APIs of the kubelet over gRPC: device plugins, and which containers have which devices.

`*_pb2.py` is what protoc makes of the `.proto` files here: `make protos`.
"""
