"""Every error and warning of this program, by id: collected from the code that prints them."""

from gpuclusters.errors.catalogue import catalogue
from gpuclusters.errors.entry import Category, Entry

__all__ = ["Category", "Entry", "catalogue"]
