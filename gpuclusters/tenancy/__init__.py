"""A tenant's isolation: what declares it, what proves it, and who in the cluster may do what."""
