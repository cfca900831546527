"""The command that simulates a fleet, and says whether every check held."""

from __future__ import annotations

import random
from typing import Annotated

import typer

from replica.cli.exits import ExitCode, Failure, usage
from replica.cli.options import Json
from replica.cli.scaling import scale_fleet
from replica.cli.sheet import Fields, Sheet
from replica.cli.terminal import Terminal
from replica.cli.times import format_span
from replica.simulator.faults import PROFILES
from replica.simulator.run import Report, simulate
from replica.simulator.workload import TOPOLOGIES

__all__ = ["simulate_app"]

_SAID = 300
"""Characters of a failure that are shown; JSON has all of it."""

simulate_app = typer.Typer(
    add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)
"""The command `ricordo simulate`, and what stands below it."""

simulate_app.command("scale")(scale_fleet)


@simulate_app.callback(invoke_without_command=True)
def simulate_fleet(
    context: typer.Context,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replicas", min=2, max=16, metavar="NUMBER", help="How many.", show_default="drawn, 2 to 5"
        ),
    ] = None,
    operations: Annotated[
        int, typer.Option("--operations", min=1, metavar="NUMBER", help="Steps of a run.")
    ] = 10_000,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, metavar="NUMBER", help="What all chance comes from.", show_default="random"
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs", min=1, metavar="NUMBER", help="Run so many seeds, one after another from --seed on."
        ),
    ] = 1,
    keys: Annotated[
        int | None,
        typer.Option(
            "--keys", min=1, max=64, metavar="NUMBER", help="How many.", show_default="drawn, 1 to 8"
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="NAME",
            help=f"Who peers with whom: {', '.join(TOPOLOGIES)}.",
            show_default="drawn",
        ),
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", metavar="NAME", help=f"What befalls the fleet: {', '.join(PROFILES)}.")
    ] = "process",
    as_json: Json = False,
) -> None:
    """Simulate a fleet, with faults, and check it.

    Whole replicas run in this process and in virtual time, over stores in memory: they write, forget,
    replicate, and suffer what --faults names. At every step, and again once the fleet has healed, an oracle
    that shares no code with the replicas says what they must hold. It calls no replica and touches no data.

    A run is a function of its options alone: the same ones replay it exactly, which the trace shows. Exits
    with 1 at the first seed that fails.

    \b
    Examples:
      ricordo simulate --replicas 5 --operations 10000 --seed 42
      ricordo simulate --operations 200 --runs 500 --faults loss
    """
    if context.invoked_subcommand is not None:
        return
    if topology is not None and topology not in TOPOLOGIES:
        raise usage(f"must be one of {', '.join(TOPOLOGIES)}", field="--topology")
    if faults not in PROFILES:
        raise usage(f"must be one of {', '.join(PROFILES)}", field="--faults")
    first = random.SystemRandom().getrandbits(32) if seed is None else seed
    terminal = Terminal(as_json)
    with terminal.progress("seed {task.fields[seed]}") as progress:
        task = progress.add_task("simulating", total=operations * runs, seed=first)
        for number in range(runs):
            done = number * operations

            def advance(steps: int, done: int = done) -> None:
                progress.update(task, completed=done + steps)

            progress.update(task, seed=first + number)
            report = simulate(
                replicas,
                operations,
                first + number,
                keys=keys,
                topology=topology,
                faults=faults,
                progress=advance,
            )
            terminal.sheet(*_shown(report, first + number, faults))
            if report.failure is not None:
                progress.stop()
                raise _failed(report, first + number)


def _shown(report: Report, seed: int, faults: str) -> tuple[dict[str, object], Sheet]:
    """For programs and for people."""
    setup, tally = report.script.setup, report.tally
    said = {
        "seed": seed,
        "ok": report.ok,
        "replicas": setup.replicas,
        "keys": setup.keys,
        "links": setup.links,
        "faults": faults,
        "tally": tally,
        "passed_ms": report.passed,
        "live": report.live,
        "trace": report.trace,
        "failure": report.failure,
    }
    rows = (
        ("verdict", "every check held" if report.failure is None else "failed"),
        ("replicas", f"{setup.replicas}, peers: {' '.join(setup.links)}"),
        ("keys", str(setup.keys)),
        ("faults", faults),
        ("steps", str(tally.steps)),
        ("writes", str(tally.writes)),
        ("concurrent values", f"after {tally.conflicts} changes"),
        ("messages", f"{tally.messages}, {tally.bytes} bytes"),
        ("streams", str(tally.streams)),
        ("reconciles", str(tally.reconciles)),
        ("purged", str(tally.purged)),
        ("virtual time", format_span(report.passed)),
        ("live at the end", str(report.live)),
        ("trace", report.trace),
    )
    return said, Sheet(f"Simulation, seed {seed}", (Fields(rows),))


def _failed(report: Report, seed: int) -> Failure:
    failure = report.failure
    assert failure is not None
    what = failure.what if len(failure.what) <= _SAID else f"{failure.what[:_SAID]}…"
    where = "once it should have healed" if failure.step < 0 else f"at step {failure.step}"
    return Failure(
        ExitCode.REFUSED,
        f"seed {seed} failed {where}: {failure.kind}: {what}",
        remedy="the same options and this --seed replay it; --json says where",
    )
