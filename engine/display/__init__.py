"""What a run looks like: lines, differences, or JSON."""
