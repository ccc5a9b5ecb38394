"""Dated tables that decisions are made from: versions, products, the values of charts.

What moves with every release of a vendor stands in files here, not in code: each says as of when it is true
and who said so.
"""
