"""Five hundred cells on sixty-four GPUs whose hosts fail: makespan, order, cost of failures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduling import (
    Attempt,
    Cluster,
    Outcome,
    Simulation,
    Task,
    bound,
    longest_first,
    study_tasks,
    table,
)

from enginebook.pipeline.plan import make_plan
from enginebook.study import Study

FIVE_HUNDRED = study_tasks(engines=10, blocks=50)


def most_at_once(attempts: tuple[Attempt, ...], host: int) -> int:
    """The most GPUs of a host that were in use at one moment."""
    moments = sorted(
        [(a.start_s, 1, a.gpus) for a in attempts if a.host == host]
        + [(a.end_s, 0, -a.gpus) for a in attempts if a.host == host]
    )
    used = most = 0
    for _, _, change in moments:
        used += change
        most = max(most, used)
    return most


def check(outcome: Outcome, tasks: list[Task], cluster: Cluster) -> None:
    done = {a.task: a for a in outcome.attempts if a.done}
    assert len(done) == sum(a.done for a in outcome.attempts)  # nothing is measured twice
    assert set(done) | set(outcome.given_up) == {t.name for t in tasks}
    for task in tasks:
        if task.name in done:
            end = done[task.name]
            assert end.end_s - end.start_s == pytest.approx(task.seconds)
            assert all(done[n].end_s <= end.start_s + 1e-9 for n in task.needs)
    assert all(most_at_once(outcome.attempts, h) <= cluster.gpus_each for h in range(cluster.hosts))


def test_five_hundred_cells_on_sixty_four_gpus() -> None:
    cluster = Cluster(8, 8)
    outcome = Simulation(FIVE_HUNDRED, cluster).run()
    check(outcome, FIVE_HUNDRED, cluster)
    assert sum(t.name.startswith("load") for t in FIVE_HUNDRED) == 500
    assert outcome.makespan_s >= outcome.bound_s
    # Graham: no list schedule of tasks of one GPU takes longer than work/m + (1 - 1/m) chain.
    work = sum(t.gpus * t.seconds for t in FIVE_HUNDRED) / 64
    chain = bound(FIVE_HUNDRED, 10**9)
    assert outcome.makespan_s <= work + chain + 1e-6
    assert not outcome.taken_again


def test_failures_cost_the_stages_of_their_host_only() -> None:
    cluster = Cluster(8, 8, hours_between_failures=1.0)
    outcome = Simulation(FIVE_HUNDRED, cluster, seed=3, retries=9).run()
    check(outcome, FIVE_HUNDRED, cluster)
    assert outcome.host_failures > 0
    assert not outcome.given_up
    assert 0 < outcome.taken_again <= 8 * outcome.host_failures
    lost = [a for a in outcome.attempts if not a.done]
    moments = {(a.host, a.end_s) for a in lost}
    assert len(moments) <= outcome.host_failures
    quiet = Simulation(FIVE_HUNDRED, Cluster(8, 8)).run()
    assert outcome.makespan_s <= quiet.makespan_s * 2.5


def test_a_stage_that_is_lost_too_often_is_given_up_with_what_needs_it() -> None:
    tasks = [Task("long", 1, 50_000.0), Task("after", 1, 1.0, ("long",), 1), Task("b", 1, 1.0)]
    cluster = Cluster(1, 1, hours_between_failures=1.0)
    outcome = Simulation(tasks, cluster, seed=2, retries=1).run()
    assert set(outcome.given_up) == {"long", "after"}
    assert sum(a.task == "long" for a in outcome.attempts) == 2
    check(outcome, tasks, cluster)


def test_one_gpu_keeps_the_studys_order() -> None:
    tasks = study_tasks(engines=2, blocks=3)
    outcome = Simulation(tasks, Cluster(1, 1)).run()
    loads = [a.task for a in outcome.attempts if a.task.startswith("load")]
    order = (("e0", 0), ("e1", 0), ("e1", 1), ("e0", 1), ("e0", 2), ("e1", 2))
    assert loads == [f"load-{e}-b{b}" for e, b in order]


def test_the_simulated_study_has_the_shape_of_a_planned_one() -> None:
    study = Study.model_validate(
        {
            "study": "t",
            "question": "?",
            "model": "smollm2-135m-instruct",
            "engines": [{"name": n, "recipe": "simulated"} for n in ("e0", "e1")],
            "scenarios": [{"name": "s", "kind": "closed_loop", "concurrency": [1]}],
            "blocks": 3,
        }
    )
    planned = make_plan(study, {}, "h").stages
    tasks = study_tasks(engines=2, blocks=3)
    assert [t.name for t in tasks] == [s.name for s in planned]
    for task, stage in zip(tasks, planned, strict=True):
        if stage.exclusive:
            assert task.needs == stage.needs


def test_longest_first_comes_nearer_to_the_bound() -> None:
    cluster = Cluster(8, 8)
    as_planned = Simulation(FIVE_HUNDRED, cluster).run()
    best = Simulation(longest_first(FIVE_HUNDRED), cluster).run()
    assert best.bound_s == pytest.approx(as_planned.bound_s)
    assert best.bound_s <= best.makespan_s < as_planned.makespan_s


@settings(max_examples=60, deadline=None)
@given(
    tasks=st.lists(
        st.tuples(st.integers(1, 4), st.floats(1, 500), st.lists(st.integers(0, 11), max_size=2)),
        min_size=1, max_size=12,
    ),
    hosts=st.integers(1, 3),
    failing=st.booleans(),
    seed=st.integers(0, 5),
)  # fmt: skip
def test_any_set_of_tasks(
    tasks: list[tuple[int, float, list[int]]], hosts: int, *, failing: bool, seed: int
) -> None:
    made = [
        Task(f"t{n}", gpus, seconds, tuple({f"t{m}" for m in needs if m < n}), n)
        for n, (gpus, seconds, needs) in enumerate(tasks)
    ]
    cluster = Cluster(hosts, 4, hours_between_failures=0.2 if failing else None, repair_s=60)
    outcome = Simulation(made, cluster, seed=seed, retries=3).run()
    check(outcome, made, cluster)
    if not outcome.given_up:
        assert outcome.makespan_s >= outcome.bound_s - 1e-6
    again = Simulation(made, cluster, seed=seed, retries=3).run()
    assert again == outcome


def test_what_cannot_be_scheduled_is_refused() -> None:
    with pytest.raises(ValueError, match="wants 8 GPUs"):
        Simulation([Task("a", 8, 1.0)], Cluster(1, 4))
    with pytest.raises(ValueError, match="wait for one another"):
        bound([Task("a", 1, 1.0, ("b",)), Task("b", 1, 1.0, ("a",))], 1)


def test_the_table_is_markdown() -> None:
    lines = table([("one", study_tasks(1, 1), Cluster(1, 1))])
    assert lines[1].count("|") == lines[2].count("|") == 8
