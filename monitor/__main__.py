"""`python -m monitor` is `trainmon`."""

from monitor.cli import main

if __name__ == "__main__":
    main()
