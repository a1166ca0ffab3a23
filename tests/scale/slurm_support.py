"""A real Slurm of two nodes on this machine: munge, one controller, two node daemons, all ours.

Everything lies in one temporary folder. Only the configuration's usual place becomes a link to it
while the cluster runs, because Snakemake's plugin hides SLURM_CONF from the steps of a job; where
that place is taken, this machine belongs to a cluster already and nothing is started.
"""

from __future__ import annotations

import functools
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo", "srun")
NODES = ("n1", "n2")
CPUS = 4
"""Of each node, as Slurm counts; jobs that mostly wait need not wait for one another."""
START_TIMEOUT_S = 60.0
USUAL_PLACE = Path("/etc/slurm/slurm.conf")
CONFIG = """\
ClusterName=enginebooktest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SwitchType=switch/none
MinJobAge=900
KillWait=10
MessageTimeout=5
TCPTimeout=1
SlurmdTimeout={dead_after_s}
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} {size} Feature=old
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} {size} Feature=new
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=60 State=UP
"""
SIZE = (
    "CPUs={cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=4000"
)


@functools.cache
def reason_against() -> str:
    """Return why no Slurm can be started here, or nothing; in CI the packages are installed."""
    if os.geteuid() != 0:
        return "starting Slurm's daemons needs root"
    if USUAL_PLACE.exists():
        return f"{USUAL_PLACE} exists: this machine belongs to a Slurm cluster"
    missing = [p for p in PROGRAMS if shutil.which(p) is None]
    if not missing:
        return ""
    if os.environ.get("ENGINEBOOK_SLURM_TESTS") and shutil.which("apt-get") and _install():
        return ""
    remedy = "apt-get install slurm-wlm munge, or set ENGINEBOOK_SLURM_TESTS=1"
    return f"{', '.join(missing)} are missing; {remedy}"


def _install() -> bool:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ["apt-get", "install", "-y", "--no-install-recommends", "slurm-wlm", "munge"]
    for command in (["apt-get", "update"], words):
        done = subprocess.run(command, env=quiet, capture_output=True, timeout=300, check=False)
        if done.returncode and command is words:
            return False
    return all(shutil.which(p) for p in PROGRAMS)


@dataclass
class Cluster:
    """A running cluster; ``env`` is what its users need."""

    folder: Path
    env: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def ask(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        done = subprocess.run(
            words, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Return the comment (the rule) of waiting and running jobs by their id."""
        lines = self.ask("squeue", "--noheader", "--format=%i|%k|%T").splitlines()
        rows = [line.split("|") for line in lines]
        return {number: rule for number, rule, state in rows if state in {"PENDING", "RUNNING"}}

    def node_of(self, job: str) -> str:
        """Return where a job runs."""
        return self.ask("squeue", "--noheader", "--format=%N", "-j", job).strip()

    def taken(self) -> Counter[str]:
        """Return how many jobs each rule has had, those that ended among them."""
        lines = self.ask("squeue", "--noheader", "--states=all", "--format=%k").splitlines()
        return Counter(line.removeprefix("rule_") for line in lines)

    def start_node(self, name: str) -> None:
        """Start a node's daemon."""
        words = ["slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf")]
        self.daemons[name] = _start(words, self)

    def kill_node(self, name: str) -> None:
        """End a node as a power cut would: its daemon and all that it runs."""
        daemon = psutil.Process(self.daemons.pop(name).pid)
        steps = [p for p in psutil.process_iter(["cmdline"]) if _steps_of(p, name)]
        # Who watches over a step comes first, or it would tell the controller how the step ended.
        watchers = {q for p in steps if (q := p.parent()) and q.name().startswith("slurmstepd")}
        family = [daemon, *watchers, *(q for p in steps for q in [p, *p.children(recursive=True)])]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    def mend(self) -> None:
        """Bring back nodes that were killed, and wait until all are idle."""
        for name in NODES:
            if name not in self.daemons:
                self.start_node(name)
        wait_until(lambda: _idle(self) == len(NODES), "the nodes do not come up")

    def cancel_all(self) -> None:
        """Cancel whatever jobs are left."""
        with suppress(AssertionError, subprocess.TimeoutExpired):
            if numbers := list(self.jobs()):
                self.ask("scancel", *numbers)

    def stop(self) -> None:
        """End all daemons and whatever jobs are left."""
        self.cancel_all()
        for name in reversed(list(self.daemons)):
            daemon = self.daemons[name]
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _steps_of(process: psutil.Process, node: str) -> bool:
    with suppress(psutil.Error):
        return process.environ().get("SLURMD_NODENAME") == node
    return False


def _start(words: list[str], cluster: Cluster) -> subprocess.Popen[bytes]:
    log = (cluster.folder / f"{words[0]}-out.log").open("ab")
    with log:
        return subprocess.Popen(
            words, env={**os.environ, **cluster.env}, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log,
        )  # fmt: skip


@contextmanager
def slurm(folder: Path, *, dead_after_s: int = 30) -> Iterator[Cluster]:
    """Run a cluster of the nodes n1 and n2.

    Parameters
    ----------
    dead_after_s
        How long a node may be silent before its jobs are given up.
    """
    folder.chmod(0o755)  # munge refuses folders that others may write to
    for name in ("munge", "state"):
        (folder / name).mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    config = CONFIG.format(
        host=socket.gethostname().split(".")[0],
        folder=folder,
        ports=free_ports(3),
        size=SIZE.format(cpus=CPUS),
        dead_after_s=dead_after_s,
    )
    (folder / "slurm.conf").write_text(config)
    cluster = Cluster(folder, {"SLURM_CONF": str(folder / "slurm.conf")})
    USUAL_PLACE.unlink(missing_ok=True)  # a link to a folder that is gone
    USUAL_PLACE.parent.mkdir(parents=True, exist_ok=True)
    USUAL_PLACE.symlink_to(folder / "slurm.conf")
    try:
        _start_all(cluster)
        yield cluster
    finally:
        cluster.stop()
        USUAL_PLACE.unlink()


def _start_all(cluster: Cluster) -> None:
    munge = cluster.folder / "munge"
    files = {"key": "key-file", "socket": "socket", "pid": "pid-file", "seed": "seed-file"}
    words = [f"--{option}={munge / name}" for name, option in files.items()]
    words += [f"--log-file={munge / 'log'}"]
    cluster.daemons["munged"] = _start(["munged", "--foreground", "--force", *words], cluster)
    wait_until((munge / "socket").exists, "munge does not listen")
    config = str(cluster.folder / "slurm.conf")
    cluster.daemons["slurmctld"] = _start(["slurmctld", "-D", "-f", config], cluster)
    cluster.mend()


def _idle(cluster: Cluster) -> int:
    try:
        states = cluster.ask("sinfo", "--noheader", "--Node", "--format=%t")
        return states.split().count("idle")
    except AssertionError:
        return 0


def wait_until(true: object, else_say: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Wait until a function returns something true."""
    assert callable(true)
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, else_say
        time.sleep(0.1)


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
