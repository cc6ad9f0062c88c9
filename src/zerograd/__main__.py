"""`python -m zerograd` is the command `zerograd`."""

import sys

from zerograd.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
