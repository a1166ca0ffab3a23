"""What executors ask for and promise, without a cluster."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from enginebook.commands.run import cluster_settings
from enginebook.engines.visible import OWN_GPUS, own_gpus
from enginebook.errors import InputError
from enginebook.lifecycle.host import host_facts
from enginebook.pipeline import executors_slurm
from enginebook.pipeline.executors import Local, Wishes, executor_of
from enginebook.pipeline.executors_node import (
    CLASS_VARIABLE,
    identity_of,
    node_class,
    node_name,
    placement,
    require_class,
)
from enginebook.pipeline.executors_profile import profile_text
from enginebook.pipeline.executors_resources import Resources, gpus_of, resources_of
from enginebook.pipeline.executors_slurm import (
    Slurm,
    SlurmOptions,
    assign_nodes,
    own_jobs,
    prefix_of,
    usable_nodes,
)
from enginebook.pipeline.executors_topology import Gpu, Host
from enginebook.pipeline.plan import Stage, make_plan
from enginebook.pipeline.snake import SNAKEFILE, Snake
from enginebook.study import Study

LOAD = {"name": "s", "kind": "closed_loop", "concurrency": [1]}


def study(*engines: dict[str, Any], model: Any = None, **more: Any) -> Study:
    return Study.model_validate(
        {
            "study": "t",
            "question": "?",
            "model": model or {"dummy": "llama-3.3-70b"},
            "engines": list(engines),
            "scenarios": [LOAD],
            "blocks": 2,
            **more,
        }
    )


GPU = {"name": "g", "recipe": "vllm-0.26-cuda"}
WIDE = {"name": "w", "recipe": "vllm-0.26-cuda", "options": {"tensor_parallel": 4}}
SIMULATED = {"name": "s", "recipe": "simulated"}


def test_stages_ask_for_their_gpus_memory_and_time(tmp_path: Path) -> None:
    both = study(GPU, WIDE)
    asked = resources_of(both, make_plan(both, {}, "h"), tmp_path)
    assert asked["load-g-b0"].gpus == 1
    assert asked["launch-w"].gpus == 4
    assert asked["host"].gpus == 4
    assert asked["report"].gpus == 0
    # 70 billion parameters of 16 bit pass through the host's memory.
    assert asked["load-g-b0"].memory_mb > 140_000
    assert all(a.minutes >= 15 for a in asked.values())


def test_simulated_engines_ask_for_little(tmp_path: Path) -> None:
    small = study(SIMULATED, model="smollm2-135m-instruct")
    asked = resources_of(small, make_plan(small, {}, "h"), tmp_path)
    assert {a.gpus for a in asked.values()} == {0}
    assert max(a.memory_mb for a in asked.values()) <= 4_000
    assert gpus_of(small.engines[0]) == 0


# -- this machine


def eight(numa: int = 1) -> Host:
    cores = {n: tuple((c,) for c in range(100 * n, 100 * n + 32)) for n in range(numa)}
    return Host(tuple(Gpu(n, f"{n}", n % numa) for n in range(8)), cores)


def test_one_stage_at_a_time_measures_this_machine() -> None:
    words = Local(Wishes(), study(GPU)).arguments()
    assert words[words.index("--resources") + 1] == "machine=1"
    assert Local(Wishes(jobs=4, exclusive=True), study(GPU), eight()).environment() == {}


def test_a_class_that_is_named_is_checked_here_too() -> None:
    named = Local(Wishes(machine="0123456789ab"), study(GPU))
    assert named.environment() == {CLASS_VARIABLE: "0123456789ab"}
    assert Local(Wishes(machine="our h200 nodes"), study(GPU)).environment() == {}


def test_gpus_side_by_side_take_parts_and_say_what_they_share(tmp_path: Path) -> None:
    pair = study(GPU, WIDE)
    local = Local(Wishes(jobs=2), pair, eight())
    words = local.arguments()
    at = words.index("--resources")
    assert words[at + 1 : at + 3] == ["machine=2", "gpu=8"]
    assert local.environment() != {}
    assert "NUMA node 0" in " ".join(local.warnings())
    plan = make_plan(pair, {}, "h")
    table = local.table(plan, resources_of(pair, plan, tmp_path))
    assert table["host"]["machine"] == 2  # alone
    assert table["load-w-b0"] == {"machine": 1, "resources": {"gpu": 4}}
    assert table["report"]["machine"] == 0


def test_what_is_shared_is_judged_by_the_parts_that_stages_get() -> None:
    # Two engines of four GPUs each, on a machine of two NUMA nodes: each has a node of its own.
    cores = {n: tuple((c,) for c in range(100 * n, 100 * n + 32)) for n in range(2)}
    halves = Host(tuple(Gpu(n, f"{n}", n // 4) for n in range(8)), cores)
    assert Local(Wishes(jobs=2), study(WIDE), halves).warnings() == []
    assert "NUMA node 0" in Local(Wishes(jobs=2), study(GPU), halves).warnings()[0]


@pytest.mark.parametrize(
    ("given", "host", "said"),
    [
        ({"engines": [{"name": "c", "recipe": "llamacpp-cpu"}]}, eight(), "compute on CPUs"),
        ({"engines": [WIDE]}, Host(eight().gpus[:4], eight().cores), "too few"),
        ({"engines": [GPU], "port": 8000}, eight(), "one engine only"),
        ({"engines": [{**GPU, "options": {"devices": [0]}}]}, eight(), "option devices of g"),
    ],
)
def test_what_cannot_share_a_machine_is_refused(given: Any, host: Host, said: str) -> None:
    wanted = study(*given["engines"], port=given.get("port", 0))
    with pytest.raises(InputError) as error:
        Local(Wishes(jobs=2), wanted, host)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("given", "seen"),
    [("2,3", [2, 3]), ("", [0, 1, 2, 3]), ("7", [0, 1, 2, 3]), ("GPU-1", [0, 1, 2, 3])],
)
def test_a_stage_looks_at_its_own_gpus(given: str, seen: list[int]) -> None:
    assert own_gpus(4, {OWN_GPUS: given}) == seen


FOREIGN = {**WIDE, "environment": {"kind": "external", "base_url": "http://127.0.0.1:9"}}


def test_a_server_of_somebody_else_needs_no_gpu_here_and_answers_one_stage_at_a_time(
    tmp_path: Path,
) -> None:
    alone = study(FOREIGN)
    asked = resources_of(alone, make_plan(alone, {}, "h"), tmp_path)
    assert {a.gpus for a in asked.values()} == {0}
    assert executor_of("local", Wishes(), alone, tmp_path).name == "local"
    assert executor_of("local", Wishes(2, exclusive=True), alone, tmp_path).name == "local"
    for name, wishes in (("local", Wishes(2)), ("slurm", Wishes()), ("slurm", Wishes(3))):
        with pytest.raises(InputError, match="answer several stages at once") as error:
            executor_of(name, wishes, alone, tmp_path)
        assert error.value.remedy == "give --jobs 1"


def test_cluster_settings_need_a_cluster() -> None:
    with pytest.raises(InputError, match="no meaning on this machine"):
        Local(Wishes(cluster={"partition": "x"}), study(GPU))


def test_a_plugin_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("enginebook.pipeline.executors.find_spec", lambda _: None)
    with pytest.raises(InputError) as error:
        executor_of("slurm", Wishes(), study(GPU), tmp_path)
    assert "enginebook[slurm]" in str(error.value)


def test_wishes_are_repeated_as_they_were_given() -> None:
    wishes = Wishes(4, exclusive=True, machine="h200", cluster={"partition": "gpu"})
    assert wishes.words("slurm") == [
        *("--executor", "slurm", "--jobs", "4", "--exclusive"),
        *("--host-id", "h200", "--cluster", "partition=gpu"),
    ]
    assert Wishes().words("local") == []


def test_a_runs_profile_says_the_same_as_its_command_line(tmp_path: Path) -> None:
    from snakemake.cli import parse_args  # noqa: PLC0415 - takes a second

    plan = make_plan(study(GPU), {}, "h")
    snake = Snake(
        plan=plan,
        plan_file=tmp_path / "plan.json",
        outputs=tmp_path,
        directory=tmp_path,
        exclusive=["host", "load"],
        executor=Local(Wishes(jobs=2), study(GPU), eight()),
        resources={s.name: Resources() for s in plan.stages},
    )
    text = profile_text(snake.settings, str(tmp_path), {"A": "x y"})
    assert f"#   A='x y' snakemake --profile {tmp_path}" in text
    (tmp_path / "config.yaml").write_text(text)
    said = vars(parse_args(snake.settings)[1])
    read = vars(parse_args(["--profile", str(tmp_path)])[1])
    assert read.pop("profile") == [str(tmp_path)]
    alike = [k for k in read if repr(said[k]).partition(" object at ")[0] in repr(read[k])]
    assert len(alike) == len(read) > 100
    assert said["resources"] == read["resources"] != {}
    assert said["config"] == read["config"]


def test_settings_of_a_cluster_are_read() -> None:
    assert cluster_settings(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    for wrong in (["a"], ["a=1", "a=2"]):
        with pytest.raises(InputError):
            cluster_settings(wrong)


# -- nodes and classes


def test_a_class_is_wider_than_a_host() -> None:
    facts = host_facts()
    gpu = {"name": "NVIDIA H200", "memory_bytes": 1 << 37}
    one = {**facts, "gpus": [{**gpu, "uuid": "GPU-1"}]}
    two = {**facts, "gpus": [{**gpu, "uuid": "GPU-2"}, {**gpu, "uuid": "GPU-3"}]}
    assert node_class(one) == node_class(two)
    other = {**facts, "gpus": [{**gpu, "name": "NVIDIA H100"}]}
    assert node_class(other) != node_class(one)
    assert node_class(facts) != node_class(one)


def test_names_and_classes_are_both_identities() -> None:
    assert identity_of("0123456789ab") == "0123456789ab"
    assert identity_of("our h200 nodes") != identity_of("our h100 nodes")
    assert len(identity_of("our h200 nodes")) == 12


def test_a_stage_refuses_another_class() -> None:
    require_class({})
    require_class({CLASS_VARIABLE: node_class(host_facts())})
    with pytest.raises(InputError, match="are of class 0123456789ab"):
        require_class({CLASS_VARIABLE: "0123456789ab"})


def test_placement_says_where() -> None:
    found = placement({"SLURMD_NODENAME": "n7", "SLURM_JOB_ID": "42"})
    assert (found["node"], found["job"], found["gpus"]) == ("n7", "42", None)
    assert found["cpus"]
    assert node_name({"NODE_NAME": "pod-host"}) == "pod-host"


# -- Slurm


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"partitoin": "x"}, "did you mean 'partition'"),
        ({"cpus": "two"}, "not a whole number"),
        ({"nodes": "some"}, "use block or any"),
    ],
)
def test_wrong_settings_of_slurm(given: dict[str, str], said: str) -> None:
    with pytest.raises(InputError) as error:
        SlurmOptions.read(given)
    assert said in str(error.value)


LINES = """\
a1|idle|h200,ib|gpu
a2|mix|h200|gpu
a3|down*|h200|gpu
a4|idle*|h200|gpu
a5|alloc|h100|gpu
a6|drain|h200|gpu
b1|idle~|h200|other
"""


@pytest.mark.parametrize(
    ("constraint", "partition", "nodes"),
    [
        (None, "gpu", ["a1", "a2", "a5"]),
        ("h200", "gpu", ["a1", "a2"]),
        ("h200&ib", "gpu", ["a1"]),
        ("h200", None, ["a1", "a2", "b1"]),
        ("h200|h100", "gpu", []),
    ],
)
def test_nodes_that_can_be_used(
    constraint: str | None, partition: str | None, nodes: list[str]
) -> None:
    assert usable_nodes(LINES, constraint, partition) == nodes


def test_a_block_stays_on_one_node() -> None:
    stages = [Stage("host", "host", "d"), Stage("compare", "compare", "d")]
    stages += [Stage(f"launch-{e}", "launch", "d", {"engine": e}) for e in "xy"]
    stages += [
        Stage(f"load-{e}-b{b}", "load", "d", {"engine": e, "block": b})
        for b in range(5)
        for e in "xy"
    ]
    pins = assign_nodes(stages, ["n1", "n2"])
    for block in range(5):
        assert pins[f"load-x-b{block}"] == pins[f"load-y-b{block}"] == f"n{block % 2 + 1}"
    assert pins["launch-x"] == pins["launch-y"] == pins["host"]
    assert "compare" not in pins
    assert assign_nodes(stages, ["n1"]) == {}


def test_only_our_own_jobs_are_ended() -> None:
    listing = (
        "12|enginebook-aaa_uuid\n13|enginebook-bbb_uuid\n14|somebody\n15|enginebook-aaa-probe\n"
    )
    assert own_jobs(listing, "enginebook-aaa") == ["12", "15"]
    assert own_jobs("", "enginebook-aaa") == []
    assert prefix_of(Path("/x")) != prefix_of(Path("/y"))


def slurm(monkeypatch: pytest.MonkeyPatch, outputs: Path, **options: str) -> Slurm:
    answers = {"sinfo": LINES.replace("a2|mix|h200", "a2|idle|h200"), "sacct": ""}
    monkeypatch.setattr(executors_slurm, "_slurm", lambda words, *_: answers.get(words[0], ""))
    monkeypatch.setattr(executors_slurm, "default_partition", lambda: "gpu")
    monkeypatch.setattr(executors_slurm, "status_command", lambda: "squeue")
    return Slurm(
        SlurmOptions.read(options), study(GPU), outputs, jobs=None, machine=None, exclusive=True
    )


def test_what_is_asked_of_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executor = slurm(monkeypatch, tmp_path, partition="gpu", constraint="h200", account="lab")
    plan = make_plan(study(GPU), {}, "h")
    table = executor.table(plan, {s.name: Resources(1, 8, 64_000, 45) for s in plan.stages})
    asked = table["load-g-b1"]["resources"]
    assert asked == {
        "mem_mb": 64_000,
        "runtime": 45,
        "cpus_per_task": 8,
        "slurm_extra": "--exclusive",
        "slurm_partition": "gpu",
        "slurm_account": "lab",
        "constraint": "h200",
        "gpu": 1,
    }
    assert table["load-g-b1"]["first"] == "--nodelist=a2"
    assert table["report"]["resources"]["slurm_extra"] == ""
    words = executor.arguments()
    assert words[words.index("--retries") + 1] == "2"
    assert words[words.index("--slurm-jobname-prefix") + 1] == prefix_of(tmp_path)
    assert executor.cleanup()[-1] == prefix_of(tmp_path)


def test_the_figures_belong_to_the_class_of_node_that_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def answer(words: list[str], *_: float) -> str:
        asked.append(words)
        return 'noise\n{"node": "a1", "class": "abcdefabcdef", "facts": {"cpu": "x"}}\n'

    executor = slurm(monkeypatch, tmp_path, partition="gpu")
    monkeypatch.setattr(executors_slurm, "_slurm", answer)
    assert executor.machine() == ({"cpu": "x"}, "abcdefabcdef")
    assert executor.environment() == {CLASS_VARIABLE: "abcdefabcdef"}
    assert executor.machine()[1] == "abcdefabcdef"
    assert len(asked) == 1  # asked once, then remembered
    assert "--gpus=1" in asked[0]
    assert "--partition=gpu" in asked[0]


def test_looks_at_the_queue_are_as_far_apart_as_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The plugin would wait ten seconds longer each time; the Snakefile says how to stop it."""
    from snakemake_executor_plugin_slurm import Executor  # noqa: PLC0415 - takes a second

    name = "next_seconds_between_status_checks"
    assert isinstance(inspect.getattr_static(Executor, name), property)
    assert f"SlurmExecutor.{name} = property(" in SNAKEFILE.read_text()
    words = slurm(monkeypatch, tmp_path, poll_s="7").arguments()
    assert words[words.index("--seconds-between-status-checks") + 1] == "7"


def test_without_slurm_it_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no host of a Slurm cluster"):
        Slurm(SlurmOptions(), study(GPU), tmp_path, jobs=None, machine=None, exclusive=False)
