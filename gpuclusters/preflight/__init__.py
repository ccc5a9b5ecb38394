"""Whether a machine can give its GPUs to virtual machines: looked at, judged, told all at once."""
