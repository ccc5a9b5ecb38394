"""The rules of a `caas` cluster. Rows are those of the table in docs/configuration.md."""
