"""Dated tables of what moves with every release of a vendor; each says as of when, and who said so."""
