"""The command line `ricordo`: see :mod:`replica.cli.app`."""

import os

# gRPC's native library writes lines of its own to standard error, amid our logs. It reads this when loaded.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
