"""Machines on Google Cloud."""
