"""The PCI functions of a host that belong to vfio-pci, now and at every boot."""
