"""The command line itself: names, help without jax, completion, and codes for misuse."""

import shutil
import subprocess
import sys
from typing import get_args

import jax
import pytest

from quietgrad import cli, families, methods
from quietgrad.cli import app, names
from quietgrad.estimators import REGISTRY as ESTIMATORS


@pytest.mark.parametrize(
    ("choices", "registry"),
    [
        (names.Family, ["auto", *families.REGISTRY]),
        (names.Method, methods.REGISTRY),
        (names.Estimator, ["auto", *ESTIMATORS]),
    ],
)
def test_choices_are_the_registered_names(choices, registry):
    assert sorted(get_args(choices)) == sorted(registry)


def test_help_names_options_and_exit_codes_without_jax():
    code = (
        "import sys; from quietgrad.cli import app\n"
        "try: app(['fit', '--help'])\nexcept SystemExit: pass\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for word in ("--data", "--arg", "--rank", "--out", "--diagnose", "low-rank", "130 interrupted"):
        assert word in done.stdout


def test_a_message_has_its_own_notes_and_not_those_of_jax(monkeypatch, capsys):
    def fails(x):
        error = ValueError("what is wrong")
        error.add_note("where it is kept")
        raise error

    with pytest.raises(ValueError, match="what is wrong") as caught:
        jax.jit(fails)(1.0)
    assert len(caught.value.__notes__) > 1, "jax adds no note: nothing is left to leave out"
    monkeypatch.setattr(cli, "app", lambda *_, **__: jax.jit(fails)(1.0))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "quietgrad: what is wrong\nwhere it is kept\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_options_and_names(shell):
    script = app.generate_completion(shell=shell)
    for word in ("fit", "race", "family", "mean-field", "quiet-stein"):
        assert word in script


COMPLETE = """
function=$(complete -p quietgrad | sed 's/.*-F \\([^ ]*\\).*/\\1/')
COMP_WORDS=(quietgrad "$@"); COMP_CWORD=$#
$function quietgrad "${COMP_WORDS[$#]}" "${COMP_WORDS[$# - 1]}"
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["f"], "fit"),
        (["fit", "my_model.py:model", "--checkp"], "--checkpoint"),
        (["fit", "my_model.py:model", "--family", "full"], "full-rank"),
        (["study", "st"], "status"),
    ],
)
def test_bash_completes(words, completed):
    script = app.generate_completion(shell="bash") + COMPLETE
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [completed]


@pytest.mark.parametrize("command", ["fit", "race"])
@pytest.mark.parametrize(
    ("given", "meant"),
    [("advi", "'mean-field', or 'full-rank'"), ("flow", "'real-nvp'"), ("[/red]low", "'[/red]low'")],
)
def test_a_family_of_another_name_is_recognised(command, given, meant, capsys):
    with pytest.raises(SystemExit) as caught:
        app([command, "breast-cancer", "--family", given])
    assert caught.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "known: arrowhead, auto, autoregressive-flow" in said
    assert meant in said


def test_completion_can_be_installed():
    assert "--install-completion" in app


@pytest.mark.parametrize(
    "words",
    [
        ["fit"],
        ["fit", "a1a", "--family", "low"],
        ["fut"],
        ["fit", "a1a", "-x"],
        ["fit", "a1a", "--steps", "0.5"],
        ["study", "quick", "--reps", "1.5"],
    ],
)
def test_misuse_exits_with_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        app(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err
