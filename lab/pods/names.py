"""Variables in the environment of every process of a pod."""

FOLDER_VARIABLE = "GPU_CLUSTERS_KUBELET"
"""The folder of the kubelets that it belongs to."""
NODE_VARIABLE = "GPU_CLUSTERS_NODE"
NAMESPACE_VARIABLE = "GPU_CLUSTERS_NAMESPACE"
"""Where its pod is."""
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
"""The GPUs that its container gets, as NVIDIA's runtime reads it."""
