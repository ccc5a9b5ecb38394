"""The rules of a `usernetes` cluster. Rows are those of docs/usernetes-configuration.md."""
