"""`python -m fastap` is `fastap`."""

from fastap.cli import main

main()
