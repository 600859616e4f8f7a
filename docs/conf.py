"""Settings of the documentation: `make docs` builds it, without a network."""

import os
import re
import warnings
from pathlib import Path

# Examples are small; more threads would make their figures slower, and less repeatable.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

import avalanche_gmc

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

project = "avalanche-gmc"
author = "The avalanche-gmc developers"
copyright = author
version = release = avalanche_gmc.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery", "examples/*.ipynb", "examples/*.py"]

html_theme = "furo"
html_title = f"avalanche-gmc {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Long types get names.
autodoc_type_aliases = {
    "ModelOrFactory": "ModelOrFactory",
    "Loss": "Loss",
    "MapDataset": "MapDataset",
}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

# Links into other projects need their inventories, hence a network: DOCS_LINKS=1 make docs.
intersphinx_mapping = (
    {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "avalanche": ("https://avalanche-api.continualai.org/en/latest", None),
    }
    if os.environ.get("DOCS_LINKS")
    else {}
)


def format_warning(message, category, filename, *rest, _format=warnings.formatwarning):
    """Nothing, for warnings of installed libraries: their paths are no part of an example."""
    return "" if "site-packages" in filename else _format(message, category, filename, *rest)


warnings.formatwarning = format_warning

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_signature": False,
    "min_reported_time": 1,
    "reset_modules": ("matplotlib",),
}

COPIED = {
    "index": "README.md",
    "experiments": "benchmarks/README.md",
    "results": "benchmarks/README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
}
"""Pages that begin with a file of the repository."""


def read_page(app, name, source):
    """Put the file of the repository before what a page says itself; let links lead to pages."""
    page = HERE / f"{name}.md"
    if page.exists():
        files = [ROOT / COPIED[name], page] if name in COPIED else [page]
        for file in files:
            app.env.note_dependency(file, docname=name)
        source[0] = "\n".join(with_links_of_the_site(file, page) for file in files)
    if name in ("experiments", "results"):
        before, after = source[0].split("\n## Results\n")
        promoted = re.sub("^#(?=##+ )", "", after, flags=re.MULTILINE)
        source[0] = before if name == "experiments" else f"# Results\n{promoted}"
    if name == "api":
        source[0] += names_without_a_section(source[0])


def names_without_a_section(text):
    """What is public and not on the page yet, so that the reference is always complete."""
    names = [name for name in avalanche_gmc.__all__ if f":: avalanche_gmc.{name}\n" not in text]
    kinds = {name: "class" if name[0].isupper() else "function" for name in names}
    lines = [f".. auto{kind}:: avalanche_gmc.{name}" for name, kind in kinds.items()]
    return "\n## More\n\n```{eval-rst}\n" + "\n".join(lines) + "\n```\n" if lines else ""


def with_links_of_the_site(source, page):
    """The text of `source` for `page`: links lead to pages of the site, or become names of files.

    In the repository itself the links lead to files, so that the pages can be read there too.
    """
    places = {ROOT / path: HERE / f"{name}.md" for name, path in COPIED.items()}
    places |= {f: HERE / "examples" / f"{f.stem}.rst" for f in HERE.glob("gallery/plot_*.py")}

    def changed(match):
        mark, text, target = match.groups()
        path, sharp, anchor = target.partition("#")
        if target.startswith("http") or not path:
            return match[0]
        file = (source.parent / path).resolve()
        file = places.get(file, file)
        if HERE not in file.parents or file.suffix == ".csv":
            return text if text.startswith("`") else f"{text} (`{path.removeprefix('../')}`)"
        return f"{mark}[{text}]({os.path.relpath(file, page.parent)}{sharp}{anchor})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", changed, source.read_text())


def visit_math(self, node):
    """Formulas as MathML, which browsers draw without scripts.

    Displayed ones are centred inline formulas: few fonts have what limits of sums need.
    """
    formula = tex2mathml(node.astext(), as_block=False)
    block = isinstance(node, nodes.math_block)
    self.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def setup(app):
    app.connect("source-read", read_page)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
