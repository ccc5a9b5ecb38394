"""A host whose account runs rootless Docker with GPUs."""
