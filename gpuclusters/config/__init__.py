"""The stack configuration: its models, its rules, and the one place that reads it.

`stack` parses a document without Pulumi, `loader` reads it from Pulumi, `stack_file` from YAML.
"""
