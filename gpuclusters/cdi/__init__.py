"""The CDI file by which containers of a host get GPUs."""
