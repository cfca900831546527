"""What the README shows is what happens: its tour, its Python, its gRPC calls."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from tests.cli.processes import COMMAND
from tests.docs.pages import README, Block, Command, blocks, commands

DEFAULT = {"--listen": "127.0.0.1:7600", "--replication-listen": "127.0.0.1:7700"}
FOLDER = "/srv/ricordo"
"""Where the README's data lives."""

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_VARYING = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC)|(?P<moment>\b\d{13}\b)|(?P<left>\bin \d+[smhd]\w*)"
    r"|(?P<name>\b[0-9a-f]{16,}\b)"
)
WITHIN = 20.0


def _text(output: str) -> str:
    """An output without how it is laid out: neither widths nor rules."""
    plain = _ANSI.sub("", output).replace("\r", "")
    return "\n".join(" ".join(re.sub("─+", "─", line).split()) for line in plain.splitlines()).strip()


class Tour:
    """A tour of command lines on a terminal, run as the README shows them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: dict[str, str] = {}
        """As shown, and as bound."""
        self._names: dict[str, str] = {}
        """Digests and versions: as shown, and as they are."""
        self._serving: list[subprocess.Popen[bytes]] = []

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("RICORDO_")}
        own = {"COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1", "XDG_CONFIG_HOME": str(self._folder)}
        listening = self._addresses.get(DEFAULT["--listen"])
        return kept | own | ({"RICORDO_ADDRESS": listening} if listening else {})

    def _started(self, line: str) -> tuple[subprocess.Popen[bytes], int]:
        words = [*COMMAND, *shlex.split(line)[1:]]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, env=self.environment(), cwd=self._folder
        )
        os.close(theirs)
        return process, ours

    def _as_bound(self, line: str) -> str:
        return re.sub(
            "|".join(map(re.escape, self._addresses)) or "$^", lambda at: self._addresses[at[0]], line
        )

    def _as_shown(self, output: str) -> str:
        for shown, bound in self._addresses.items():
            output = output.replace(bound, shown)
        return _text(output.replace(str(self._folder), FOLDER))

    def serve(self, command: Command) -> None:
        """Start a replica on free ports, and compare what it announces."""
        words = shlex.split(command.line)
        shown = {
            flag: words[words.index(flag) + 1] if flag in words else usual for flag, usual in DEFAULT.items()
        }
        free = "".join(f" {flag} 127.0.0.1:0" for flag in DEFAULT)
        process, terminal = self._started(command.line + free)
        self._serving.append(process)
        said = ""
        while "stops it" not in said:
            try:
                said += os.read(terminal, 4096).decode()
            except OSError:
                pytest.fail(f"$ {command.line}\n{said}")
        threading.Thread(target=_drain, args=(terminal,), daemon=True).start()
        bound = re.findall(r"127\.0\.0\.1:\d+", said)
        self._addresses |= dict(zip(shown.values(), bound, strict=False))
        announced, _, _ = said.partition("stops it.")
        first = announced.index("Ricordo")
        assert self._as_shown(announced[first:] + "stops it.") == _text(command.output), command.line

    def run(self, command: Command) -> None:
        """Run a command and compare its output; what only reads is given time to see what is on its way."""
        if command.line.startswith("ricordo serve"):
            self.serve(command)
            return
        reads = command.line.split()[1] in ("recall", "history", "scan", "digest", "topics", "status")
        ends = time.monotonic() + (WITHIN if reads else 0)
        while True:
            process, terminal = self._started(self._as_bound(command.line))
            output = self._as_shown(_drain(terminal))
            assert process.wait() in (0, 3), output
            if self._agrees(_text(command.output), output):
                return
            assert time.monotonic() < ends, f"$ {command.line}\n{output}"

    def _agrees(self, shown: str, found: str) -> bool:
        """Equal, but for times; and what has one name in one place has one name everywhere."""
        if _VARYING.sub(_kind, shown) != _VARYING.sub(_kind, found):
            return False
        names = dict(self._names)
        for one, other in zip(_VARYING.finditer(shown), _VARYING.finditer(found), strict=True):
            if one["name"] and names.setdefault(one["name"], other["name"]) != other["name"]:
                return False
        self._names = names
        return len(set(names.values())) == len(names)

    def end(self) -> None:
        for process in self._serving:
            process.terminate()
        for process in self._serving:
            assert process.wait(30) == 0


def _kind(found: re.Match[str]) -> str:
    return f"<{found.lastgroup}>"


def _drain(terminal: int) -> str:
    """Everything until whoever writes there has ended."""
    said = b""
    try:
        while data := os.read(terminal, 65536):
            said += data
    except OSError:
        pass  # The other end is closed: on Linux that is how a terminal says so.
    os.close(terminal)
    return said.decode()


def test_the_tour_goes_as_it_is_shown(tmp_path: Path) -> None:
    tour = Tour(tmp_path)
    try:
        for block in blocks(README, "console"):
            for command in commands(block):
                tour.run(command)
    finally:
        tour.end()


@pytest.mark.parametrize("block", blocks(README, "python"), ids=str)
def test_the_python_runs(block: Block, address: str) -> None:
    assert DEFAULT["--listen"] in block.text
    code = block.text.replace(DEFAULT["--listen"], address)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


GRPCURL = [
    command.line
    for block in blocks(README, "sh")
    for command in commands(block)
    if command.line.startswith("grpcurl")
]


@pytest.mark.parametrize("line", GRPCURL)
def test_the_calls_are_those_that_the_server_reflects(line: str, address: str) -> None:
    words = shlex.split(line)
    assert words[1] == "-plaintext"
    data = json.loads(words[words.index("-d") + 1]) if "-d" in words else {}
    called, target = words[-2:]
    assert called == DEFAULT["--listen"]
    with grpc.insecure_channel(address) as channel:
        reflected = ProtoReflectionDescriptorDatabase(channel)
        if target == "list":
            assert {"ricordo.v1.Memory", "ricordo.v1.Admin"} <= set(reflected.get_services())
            return
        service, _, name = target.partition("/")
        method = DescriptorPool(reflected).FindServiceByName(service).FindMethodByName(name)
        request, response = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = channel.unary_unary(
            f"/{target}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        # A member that the message does not have is an error here.
        assert MessageToDict(call(ParseDict(data, request())))
    if shutil.which("grpcurl"):
        words[-2] = address
        assert json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)


def test_there_are_calls_and_python_to_test() -> None:
    assert len(GRPCURL) >= 4
    assert len(blocks(README, "python")) == 2
