"""The study's own arithmetic: cells, their seeds, and the order of blocks."""

from __future__ import annotations

from enginebook.scenarios import ClosedLoop
from enginebook.study import EngineSpec, ModelSpec, Study, slug


def a_study(blocks: int = 3) -> Study:
    return Study(
        study="try",
        question="Which?",
        model=ModelSpec(name="m"),
        engines=[EngineSpec(name=n, recipe=n) for n in ("a", "b", "c")],
        scenarios=[
            ClosedLoop(name="s", concurrency=[1, 8], input_tokens=[16, 32], skip=["b"]),
            ClosedLoop(name="t", requests_per_stream=3, min_requests=5, warmup_per_stream=2),
        ],
        blocks=blocks,
        seed=7,
    )


def test_blocks_run_forth_and_back_so_that_drift_cancels() -> None:
    order = a_study(blocks=2).block_order()
    assert order == [(0, "a"), (0, "b"), (0, "c"), (1, "c"), (1, "b"), (1, "a")]
    # Any drift that is linear in time falls on all engines alike.
    place = {name: sum(i for i, (_, n) in enumerate(order) if n == name) for name in "abc"}
    assert len(set(place.values())) == 1


def test_engines_share_seeds_within_a_block_and_not_between_blocks() -> None:
    study = a_study()
    seeds = {(b, e): [c.seed for c in study.cells(e, b)] for b, e in study.block_order()}
    assert seeds[(0, "a")] == seeds[(0, "c")]
    # No two cells of one server may share a prompt: the second would find it in the prefix cache.
    everything = [seed for b in range(3) for seed in seeds[(b, "a")]]
    assert len(set(everything)) == len(everything) == 15


def test_cells_are_the_product_of_the_axes_and_a_skipping_engine_has_none() -> None:
    study = a_study()
    ours = [c for c in study.cells("a", 0) if c.scenario == "s"]
    assert [(c.input_tokens, c.concurrency) for c in ours] == [(16, 1), (16, 8), (32, 1), (32, 8)]
    assert not [c for c in study.cells("b", 0) if c.scenario == "s"]


def test_requests_grow_with_streams_above_a_floor() -> None:
    scenario = ClosedLoop(
        name="t", concurrency=[1, 4], requests_per_stream=3, min_requests=5, warmup_per_stream=2
    )
    assert [(c.requests, c.warmup_requests) for c in scenario.cells("a", 0, 1)] == [(5, 2), (12, 8)]


def test_labels_are_safe_and_short() -> None:
    assert ModelSpec(path="/models/My-Model/").label == "My-Model"
    assert ModelSpec(hub="org/name").label == "name"
    assert slug("Llama 3.3 70B / FP8") == "llama-3.3-70b-fp8"
    assert slug("../..") == "unnamed"
