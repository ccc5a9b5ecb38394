"""What every capability stands on: findings and their codes, the loop that converges, the one way to wait."""
