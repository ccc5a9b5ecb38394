"""The VM on a host that holds its NVSwitches and runs the fabric manager."""
