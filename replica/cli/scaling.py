"""The command that measures how the cost of replication grows with a fleet."""

from __future__ import annotations

from typing import Annotated

import typer

from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.options import Json
from replica.cli.sheet import Column, Fields, Listing, Sheet
from replica.cli.terminal import Terminal
from replica.cli.times import format_span
from replica.simulator.scale import PHASES, SHAPES, Phase, ScaleReport, ScaleSetup, measure_scale
from replica.simulator.scale_fleet import DELAYS, Stuck
from replica.wire.sizes import wire_size

__all__ = ["format_bytes", "scale_fleet"]

_COLUMNS = (
    Column("phase", whole=True),
    Column("time", right=True),
    Column("writes", right=True),
    Column("everywhere after", right=True),
    Column("data", right=True),
    Column("gossip", right=True),
    Column("greetings", right=True),
    Column("heartbeats", right=True),
    Column("busiest replica", right=True),
)


def scale_fleet(
    replicas: Annotated[
        int, typer.Option("--replicas", min=2, max=1000, metavar="NUMBER", help="How many.")
    ] = 30,
    topology: Annotated[
        str, typer.Option("--topology", metavar="NAME", help=f"Who peers with whom: {', '.join(SHAPES)}.")
    ] = "star",
    seed: Annotated[
        int, typer.Option("--seed", min=0, metavar="NUMBER", help="What all chance comes from.")
    ] = 0,
    writers: Annotated[
        int | None,
        typer.Option(
            "--writers",
            min=1,
            metavar="NUMBER",
            help="So many replicas write; each has a row in every clock.",
            show_default="all",
        ),
    ] = None,
    writes: Annotated[
        int,
        typer.Option(
            "--writes", min=1, metavar="NUMBER", help="On each side, while the fleet is cut in two."
        ),
    ] = 10,
    body_bytes: Annotated[
        int, typer.Option("--body-bytes", min=0, max=65_536, metavar="NUMBER", help="Of each entry.")
    ] = 300,
    as_json: Json = False,
) -> None:
    """Measure what replication costs a large fleet.

    Whole replicas run in this process and in virtual time, as in `ricordo simulate`, but without faults and
    without an oracle. The fleet comes together, writes, idles, writes steadily, is cut in two and heals; for
    each phase messages, bytes and time are counted. Bytes are those of the messages as protobuf; links have
    delays and no bound on bytes, and computing takes no time.

    In a tree each replica has two below it; in a regular fleet each has four peers, drawn. Beyond a hundred
    replicas, or thirty in a mesh, a run takes minutes.

    \b
    Example:
      ricordo simulate scale --replicas 100 --topology tree
    """
    if topology not in SHAPES:
        raise usage(f"must be one of {', '.join(SHAPES)}", field="--topology")
    if writers is not None and writers > replicas:
        raise usage("must be no more than there are replicas", field="--writers")
    setup = ScaleSetup(replicas, topology, seed, writers, writes, body_bytes)
    terminal = Terminal(as_json)
    with terminal.progress("{task.completed} of {task.total} phases") as progress:
        task = progress.add_task("measuring", total=len(PHASES))

        def begun(phase: str) -> None:
            progress.update(task, description=phase, completed=PHASES.index(phase))

        try:
            report = measure_scale(setup, wire_size, progress=begun)
        except Stuck as stuck:
            progress.stop()
            raise Failure(
                ExitCode.REFUSED, f"the fleet did not converge: {stuck}", remedy="the same options replay it"
            ) from None
    terminal.sheet(report, _sheet(report))


def _sheet(report: ScaleReport) -> Sheet:
    setup = report.setup
    rows = (
        ("replicas", f"{setup.replicas}, {report.links} links of {DELAYS[0]} to {DELAYS[1]} ms"),
        ("writers", str(setup.writers or setup.replicas)),
        ("streams that broke", str(report.reopened)),
        ("at the end", "all replicas hold the same"),
    )
    listing = Listing(_COLUMNS, tuple(_row(phase) for phase in report.phases), "Phases")
    return Sheet(f"A {setup.topology} of {setup.replicas}, seed {setup.seed}", (Fields(rows), listing))


def _row(phase: Phase) -> tuple[str, ...]:
    parts = (phase.data, phase.gossip, phase.greetings, phase.beats)
    return (
        phase.name,
        format_span(phase.passed),
        str(phase.writes),
        f"{max(phase.reached)} ms" if phase.reached else "-",
        *(f"{part.messages}, {format_bytes(part.bytes)}" if part.messages else "-" for part in parts),
        format_bytes(phase.busiest_bytes),
    )


def format_bytes(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
