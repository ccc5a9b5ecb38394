"""Virtual machines as containers: charts, settings and sizes."""
