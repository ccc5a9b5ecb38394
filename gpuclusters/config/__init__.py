"""The stack configuration: its models, its rules, and the one place that reads it.

`stack` reads a stack file without Pulumi, `loader` from Pulumi.
"""
