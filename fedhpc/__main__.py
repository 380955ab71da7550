"""`python -m fedhpc` is the console script `fedhpc`."""

from fedhpc.cli import main

if __name__ == "__main__":
    main()
