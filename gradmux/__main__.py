"""`python -m gradmux`: the command line."""

from gradmux.cli.main import main

if __name__ == "__main__":
    main()
