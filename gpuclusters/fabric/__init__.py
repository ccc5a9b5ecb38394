"""The partitions of an NVSwitch board: cut, restored after a restart, never taken from under a guest."""
