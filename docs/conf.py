"""The documents as a site: `make docs`. Pages are plain Markdown that reads as well on a forge."""

from __future__ import annotations

project = "gpu-clusters"
author = "the maintainers of gpu-clusters"
extensions = ["myst_parser", "docs.reference"]
exclude_patterns = ["_build", "README.md"]
source_suffix = {".md": "markdown"}
root_doc = "index"

# Links within pages are checked: to headings by the names that a forge gives them.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
nitpicky = True
# A page that a later version brings is listed by its pattern before it is there.
suppress_warnings = ["toc.empty_glob"]
# Blocks without a language are console sessions and drawings.
highlight_language = "none"

html_theme = "furo"
html_title = "gpu-clusters"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
