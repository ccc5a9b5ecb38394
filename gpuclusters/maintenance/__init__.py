"""Nodes out of service."""
