"""`python -m zerograd` is the command `zerograd`."""

import os
import sys

if __name__ == "__main__":
    # Python has put the working directory first on the path. There a module of the project could take the
    # place of one of the standard library, and a check would execute it. A watched script needs the directory.
    try:
        if sys.argv[1:2] != ["run"] and sys.path[:1] == [os.getcwd()]:
            del sys.path[0]
    except OSError:
        pass  # the directory is gone, which the command says
    from zerograd.cli.main import main

    sys.exit(main())
