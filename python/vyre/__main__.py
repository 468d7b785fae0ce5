"""The `vyre` command: `python -m vyre run examples/saxpy.vyre`."""

import os
import signal
import sys

from . import _vyre


def main() -> int:
    # An interrupt ends the command as it ends the `vyre` program, without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.platform == "linux" and "XDG_RUNTIME_DIR" not in os.environ:
        # There is no display session, and Mesa would complain about that on standard error.
        os.environ["NODEVICE_SELECT"] = "1"
    return _vyre.main(["vyre", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
