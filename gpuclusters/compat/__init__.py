"""What goes with what: versions, products, platforms, matrices, each a dated table with its sources."""
