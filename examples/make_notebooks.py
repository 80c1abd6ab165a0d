"""Make notebooks of some examples, with their output: `python examples/make_notebooks.py`.

A script's docstring becomes the title, `# %% text` begins a cell with that text above it. With names,
only these scripts are made. Needs the extra `docs`.
"""

import ast
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

HERE = Path(__file__).parent
NOTEBOOKS = ("logistic_regression", "bayesian_network", "pymc_model")


def cells_of(source: str) -> list:
    """The docstring, then text and code of each part in turn."""
    docstring = ast.parse(source).body[0]
    title, _, rest = ast.get_docstring(ast.parse(source)).partition("\n\n")
    cells = [new_markdown_cell(f"# {title.rstrip('.')}" + (f"\n\n{rest}" if rest else ""))]
    code = "\n".join(source.splitlines()[docstring.end_lineno :])
    first, *parts = code.split("\n# %% ")
    cells.append(new_code_cell(first.strip()))
    for part in parts:
        text, _, body = part.partition("\n")
        cells += [new_markdown_cell(text), new_code_cell(body.strip())]
    return [cell for cell in cells if cell.source]


def notebook_of(script: Path) -> nbformat.NotebookNode:
    """The notebook without output. Ids are numbers, so that nothing changes but what is computed."""
    cells = cells_of(script.read_text())
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def main(names: tuple[str, ...]) -> None:
    (HERE / "notebooks").mkdir(exist_ok=True)
    for name in names:
        notebook = notebook_of(HERE / f"{name}.py")
        NotebookClient(notebook, timeout=1200, record_timing=False).execute()
        for cell in notebook.cells:
            # What goes to standard error speaks of the machine it ran on.
            if cell.cell_type == "code":
                cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
        nbformat.write(notebook, HERE / "notebooks" / f"{name}.ipynb")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or NOTEBOOKS)
