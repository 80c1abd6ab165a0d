"""The command line: arguments and exit codes, nothing else. jax is imported when a command runs."""

import sys
from collections.abc import Sequence

import cyclopts

from .._version import __version__
from .inference import fit, race, show
from .studies import report, study

app = cyclopts.App(
    name="quietgrad",
    help="Variational inference with low-noise gradients.",
    version=__version__,
)
app.command(fit)
app.command(race)
app.command(show)
app.command(study)


@app.command(name="list")
def list_names() -> int:
    """List tasks, families, methods and estimators, with a line on each."""
    from .commands.catalogue import print_catalogue

    return print_catalogue()


app.command(report)


@app.command
def info() -> int:
    """Print versions, machine and data sources: what to put into a bug report."""
    from .commands.catalogue import print_info

    return print_info()


app.register_install_completion_command(
    help="Install completion for your shell (bash, zsh or fish) and say where it went."
)


_MISUSED = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command of these arguments, or else of the command line, and exit.

    0 done; 1 ran but did not succeed; 2 misuse; 3 a fit that reached its limit before it converged;
    4 and 5 a fit that converged with the verdict "use the corrected draws" or "do not trust"; 130
    interrupted.
    """
    try:
        sys.exit(app(arguments, result_action="return_value"))
    except (ValueError, TypeError, OSError, ImportError) as error:
        # jax notes that it has shortened a traceback, which is not shown here.
        told = [note for note in getattr(error, "__notes__", ()) if "JAX has removed" not in note]
        notes = "".join(f"\n{note}" for note in told)
        print(f"quietgrad: {error}{notes}", file=sys.stderr)
        # A name that is wrong is misuse; a disk that is full is not.
        sys.exit(1 if isinstance(error, OSError) and not isinstance(error, _MISUSED) else 2)
    except KeyboardInterrupt:
        print("quietgrad: interrupted", file=sys.stderr)
        sys.exit(130)
