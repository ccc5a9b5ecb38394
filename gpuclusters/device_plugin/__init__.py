"""What the kubelet is told about GPUs."""
