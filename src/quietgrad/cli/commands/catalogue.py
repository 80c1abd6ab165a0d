"""`quietgrad list` and `quietgrad info`."""

from rich.console import Console
from rich.table import Table

from ..._util.environment import environment
from ...datasets import files, tasks
from ...energy import REGISTRY as ENERGY_METHODS
from ...estimators import REGISTRY as ESTIMATORS
from ...estimators.scores import REGISTRY as SCORES
from ...families import REGISTRY as FAMILIES
from ...methods import REGISTRY as METHODS


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (thing.__doc__ or "").strip().splitlines()[0]


def print_catalogue() -> int:
    """Print every name that the other commands accept."""
    console = Console()
    registries = {
        "tasks": {name: entry.title for name, entry in tasks.REGISTRY.items()},
        "families": {name: first_line(cls) for name, cls in FAMILIES.items()},
        "methods": {name: first_line(cls) for name, cls in METHODS.items()},
        "estimators": {name: first_line(make) for name, make in ESTIMATORS.items()},
        "scores of semi-implicit families (SemiImplicitPathwise)": {
            name: first_line(cls) for name, cls in SCORES.items()
        },
        "methods for energies (fit_energy)": {
            name: first_line(make) for name, make in ENERGY_METHODS.items()
        },
    }
    for kind, entries in registries.items():
        table = Table(title=kind, show_header=False, title_justify="left", box=None)
        for name, line in entries.items():
            table.add_row(f"[bold]{name}[/bold]", line)
        console.print(table)
        console.print()
    return 0


def print_info() -> int:
    """Print the environment and where data files are looked for."""
    table = Table(show_header=False, box=None)
    for name, value in environment().items():
        table.add_row(name, str(value))
    for name, value in files.places().items():
        table.add_row(name, str(value))
    Console().print(table)
    return 0
