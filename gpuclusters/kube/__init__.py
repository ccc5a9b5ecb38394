"""The way out to the API server."""
