"""`python -m quietgrad` is the command `quietgrad`."""

from .cli import main

if __name__ == "__main__":
    main()
