"""The configuration: its models and rules; `stack` reads it without Pulumi, `loader` from Pulumi."""
