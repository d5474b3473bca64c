"""`python -m monitor` is `trainmon`."""

from monitor.entry import main

if __name__ == "__main__":
    main()
