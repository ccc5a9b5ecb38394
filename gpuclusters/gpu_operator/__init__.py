"""NVIDIA's GPU Operator: its chart, what is in its way, when GPUs are ready, how MIG cuts them."""
