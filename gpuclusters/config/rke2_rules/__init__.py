"""The rules of an `rke2` cluster. Rows are those of the table in docs/rke2.md."""
