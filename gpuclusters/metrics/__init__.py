"""Metrics of GPUs: what is exported, which alerts there are, which Prometheus selects them."""
