"""Machines on Google Cloud and what they stand in: network, firewall, account."""
