"""Stand-in for pulumi-gcp: previews without an account, and refuses to make anything."""
