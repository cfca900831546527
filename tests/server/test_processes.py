"""Replicas as real processes: how they start, stop, die, and what is there afterwards."""

import resource
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from replica.wire import admin_pb2 as apb
from replica.wire import memory_pb2 as pb
from tests.server.process import Process, run_to_its_end


class Writers:
    """Threads that remember entries as fast as they are answered, until the replica is gone."""

    def __init__(self, process: Process, name: str, threads: int = 4) -> None:
        self._process = process
        self._name = name
        self.acknowledged: set[str] = set()
        self._enough = threading.Event()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(at,)) for at in range(threads)]
        for thread in self._threads:
            thread.start()

    def _write(self, at: int) -> None:
        number = 0
        while not self._stop.is_set():
            id = f"{self._name}-{at}-{number}"
            request = pb.RememberRequest(repo_id="r", topic="t", id=id, title=id)
            try:
                self._process.memory.Remember(request, timeout=30)
            except grpc.RpcError:
                return
            self.acknowledged.add(id)
            if len(self.acknowledged) >= 100:
                self._enough.set()
            number += 1

    def wait_until_busy(self) -> None:
        """Until a hundred are acknowledged."""
        assert self._enough.wait(60)

    def stop(self) -> None:
        """Write no more."""
        self._stop.set()

    def join(self) -> set[str]:
        """What was acknowledged, when every thread has seen the replica go."""
        for thread in self._threads:
            thread.join(60)
        return self.acknowledged


def everything(process: Process) -> set[str]:
    """The ids of every entry."""
    found: set[str] = set()
    token = ""
    while True:
        page = process.memory.Scan(pb.ScanRequest(repo_id="r", page_size=500, page_token=token))
        assert all(entry.title == entry.id for entry in page.entries)
        found |= {entry.id for entry in page.entries}
        token = page.next_page_token
        if not token:
            return found


def test_it_says_where_its_data_lives_and_where_it_listens(tmp_path: Path) -> None:
    with Process(tmp_path / "eu") as process:
        said = process.announced
        assert (said["event"], said["cluster"], said["data_dir"]) == ("serving", "eu", str(tmp_path / "eu"))
        assert said["pid"] == process.pid
        status = process.admin.GetStatus(apb.GetStatusRequest())
        assert said["listen"] == status.listen_address
        assert said["replication_listen"] == status.replication_address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_under_load_loses_no_acknowledged_write(tmp_path: Path, number: int) -> None:
    with Process(tmp_path) as process:
        writers = Writers(process, "a")
        writers.wait_until_busy()
        process.signal(number)
        code, logged = process.ended()
        acknowledged = writers.join()
    assert code == 0
    assert [line["event"] for line in logged] == ["serving", "stopping", "stopped"]
    with Process(tmp_path) as process:
        assert everything(process) >= acknowledged


def test_a_kill_in_the_middle_of_writes_loses_no_acknowledged_one(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for life in range(4):
        with Process(tmp_path) as process:
            assert everything(process) >= acknowledged
            writers = Writers(process, f"life-{life}")
            writers.wait_until_busy()
            process.signal(signal.SIGKILL)
            acknowledged |= writers.join()
    with Process(tmp_path) as process:
        assert everything(process) >= acknowledged
        status = process.admin.GetStatus(apb.GetStatusRequest())
        assert status.counts.damaged == 0


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGINT)
        code, _ = process.ended()
    assert code in (128 + signal.SIGINT, 128 + signal.SIGTERM)


@pytest.mark.parametrize("flag", ["listen", "replication_listen"])
def test_a_port_in_use_is_an_error_in_one_line(tmp_path: Path, flag: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run_to_its_end(tmp_path, **{flag: address})
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert line.startswith(f"ricordo: {address}: another process listens there")
    assert result.stdout == ""


def test_a_port_of_another_replica_is_in_use(tmp_path: Path) -> None:
    with Process(tmp_path / "eu") as process:
        result = run_to_its_end(tmp_path / "us", cluster="us", listen=process.announced["listen"])
    assert (result.returncode, result.stdout) == (1, "")
    assert "another process listens there" in result.stderr


@pytest.mark.parametrize(
    ("address", "reason"),
    [("203.0.113.1:1", "cannot be listened on"), ("nowhere.invalid:1", "the host is not known")],
)
def test_an_address_that_is_not_ours_is_an_error_in_one_line(
    tmp_path: Path, address: str, reason: str
) -> None:
    result = run_to_its_end(tmp_path, listen=address)
    [line] = result.stderr.splitlines()
    assert result.returncode == 1
    assert line.startswith(f"ricordo: {address}: {reason}")


def test_a_second_process_on_a_data_directory_is_told_of_the_first(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        result = run_to_its_end(tmp_path)
        [line] = result.stderr.splitlines()
        assert result.returncode == 1
        assert f"in use by process {process.pid}" in line
        process.memory.Remember(pb.RememberRequest(repo_id="r", topic="t"))


def test_a_data_directory_of_another_cluster_is_refused_and_left_alone(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        process.memory.Remember(pb.RememberRequest(repo_id="r", topic="t", id="a", title="a"))
        process.signal(signal.SIGTERM)
        process.ended()
    result = run_to_its_end(tmp_path, cluster="us")
    [line] = result.stderr.splitlines()
    assert result.returncode == 1
    assert "belongs to cluster 'eu'" in line
    with Process(tmp_path) as process:
        assert everything(process) == {"a"}


def test_a_full_disk_refuses_writes_and_reads_go_on(tmp_path: Path) -> None:
    with Process(tmp_path) as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        acknowledged: set[str] = set()
        refused: grpc.RpcError | None = None
        while refused is None:
            id = str(len(acknowledged))
            try:
                process.memory.Remember(
                    pb.RememberRequest(repo_id="r", topic="t", id=id, title=id, body="x" * 60000)
                )
                acknowledged.add(id)
            except grpc.RpcError as error:
                refused = error
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "nothing was written" in refused.details()
        assert everything(process) == acknowledged
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        process.memory.Remember(pb.RememberRequest(repo_id="r", topic="t", id="again", title="again"))
        assert everything(process) == acknowledged | {"again"}


def test_an_acknowledged_peer_outlives_a_restart(tmp_path: Path) -> None:
    add: Callable[[Process], apb.AddPeerResponse] = lambda process: process.admin.AddPeer(  # noqa: E731
        apb.AddPeerRequest(cluster="us", address="127.0.0.1:9")
    )
    with Process(tmp_path) as process:
        assert add(process).added
        process.signal(signal.SIGKILL)
        process.ended()
    with Process(tmp_path) as process:
        assert not add(process).added
        status = process.admin.GetStatus(apb.GetStatusRequest())
        assert [(peer.cluster, peer.address) for peer in status.peers] == [("us", "127.0.0.1:9")]
        assert status.peers[0].origin == apb.PEER_ORIGIN_ADDED
        assert process.admin.RemovePeer(apb.RemovePeerRequest(cluster="us")).removed
        assert not process.admin.GetStatus(apb.GetStatusRequest()).peers
    with Process(tmp_path) as process:
        assert not process.admin.GetStatus(apb.GetStatusRequest()).peers


def test_processes_that_are_killed_in_turn_agree_in_the_end(tmp_path: Path) -> None:
    ports = {"eu": "0", "us": "0"}
    running: dict[str, Process] = {}
    acknowledged: set[str] = set()

    def start(cluster: str) -> None:
        running[cluster] = Process(
            tmp_path / cluster,
            cluster=cluster,
            replication_listen=f"127.0.0.1:{ports[cluster]}",
        )
        ports[cluster] = running[cluster].announced["replication_listen"].rpartition(":")[2]

    def digest(cluster: str) -> bytes:
        return running[cluster].admin.GetDigest(apb.GetDigestRequest(at_ms=0)).digest

    with ExitStack() as stack:
        for cluster in ports:
            start(cluster)
            stack.callback(lambda cluster=cluster: running[cluster].__exit__())
        for here, there in (("eu", "us"), ("us", "eu")):
            address = running[there].announced["replication_listen"]
            running[here].admin.AddPeer(apb.AddPeerRequest(cluster=there, address=address))
        for life, killed in enumerate(("eu", "us", "eu")):
            writers = [Writers(running[cluster], f"{cluster}-{life}", threads=2) for cluster in ports]
            for each in writers:
                each.wait_until_busy()
            running[killed].signal(signal.SIGKILL)
            running[killed].ended()
            start(killed)
            for each in writers:
                each.stop()
                acknowledged |= each.join()
        while digest("eu") != digest("us"):
            pass
        assert everything(running["eu"]) >= acknowledged
