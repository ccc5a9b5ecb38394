"""RKE2 on hosts that are reached over SSH: join, upgrade, drain, remove."""
