"""The way out to machines: files, units and PCI functions over SSH, and the resource `HostFile`."""
