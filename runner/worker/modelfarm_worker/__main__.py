"""`python -m modelfarm_worker`, started by the farm with the control socket as file descriptor 0."""

import os
import sys

from modelfarm_worker.zygote import serve

if __name__ == "__main__":
    code = serve()
    sys.stderr.flush()
    # No teardown: the libraries in this process take their time with it and report leaks of their own.
    os._exit(code)
