"""``python -m gnomon``: the same as the ``gnomon`` command."""

from gnomon.cli import main

if __name__ == "__main__":
    main()
