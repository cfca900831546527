"""Run the demo: `python -m replica.demo`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from replica.cli.exits import ExitCode
from replica.demo.fleet import CLUSTERS, DemoError, Fleet
from replica.demo.links import Links
from replica.demo.narrator import Narrator
from replica.demo.notes import RECORDS, NotesError, read_notes
from replica.demo.tour import STEPS, Tour

__all__ = ["main"]


def main() -> int:
    """0: everything held. 1: something did not. 2: there are no notes. 130: interrupted."""
    parser = argparse.ArgumentParser(prog="python -m replica.demo", description=__doc__)
    parser.add_argument(
        "--notes", metavar="FOLDER", type=Path, default=RECORDS, help="decision records to show"
    )
    parser.add_argument("--stay", action="store_true", help="leave the replicas running until Ctrl-C")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _ended)
    begun = time.monotonic()
    try:
        notes = read_notes(arguments.notes)
        with (
            tempfile.TemporaryDirectory(prefix="ricordo-demo-") as folder,
            Links(CLUSTERS) as links,
            Fleet(Path(folder), links) as fleet,
        ):
            narrator = Narrator({cluster: fleet[cluster].address for cluster in CLUSTERS})
            tour = Tour(fleet, narrator, notes, Path(folder))
            for number, step in enumerate(STEPS, 1):
                narrator.heading(f"{number}/{len(STEPS)} {step.title}")
                step.run(tour)
            narrator.say(
                f"Everything held, in {time.monotonic() - begun:.0f} seconds. README.md goes on from here."
            )
            if arguments.stay:
                narrator.say("The replicas stay until Ctrl-C; call one with --address.")
                signal.pause()
    except (DemoError, NotesError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return ExitCode.USAGE if isinstance(error, NotesError) else ExitCode.REFUSED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.OK


def _ended(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that no replica is left behind."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
