"""What tenants ask for and what they are told."""
