"""The configuration of stacks: files, keys, values, and what the project says about them."""
