"""Proof that GPUs work, alone and together."""
