"""A host that is a node of a Usernetes cluster: Kubernetes in rootless Docker."""
