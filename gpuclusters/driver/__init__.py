"""NVIDIA's driver on a host."""
