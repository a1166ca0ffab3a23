"""A small model of an inference engine's scheduler: pure, without clock or network.

Continuous batching with chunked prefill, a KV pool, preemption by recomputation and reuse of
prefixes in whole blocks. Time is what the cost model says a step takes. Standard library only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Costs:
    """What a step costs, in microseconds."""

    step_us: float = 2000.0
    prefill_us_per_token: float = 100.0
    decode_us_per_sequence: float = 100.0
    read_us_per_1000_kv_tokens: float = 50.0


@dataclass(frozen=True)
class Limits:
    """What the engine may hold; all in tokens but ``max_num_seqs`` (sequences)."""

    kv_tokens: int = 16384
    max_num_seqs: int = 8
    prefill_budget: int = 2048
    block_size: int = 16
    prefix_cache: bool = True


@dataclass(eq=False)
class Sequence:
    """One request: a prompt and how many tokens are wanted after it."""

    prompt: tuple[int, ...]
    output_tokens: int
    cached: int = 0
    computed: int = 0  # tokens whose KV is there, cached ones included
    produced: int = 0

    @property
    def known(self) -> int:
        """Return the tokens that are known: the prompt and all answers so far."""
        return len(self.prompt) + self.produced

    @property
    def own(self) -> int:
        """Return the tokens that this sequence holds in the pool by itself."""
        return self.computed - self.cached

    @property
    def done(self) -> bool:
        """Return whether all wanted tokens are there."""
        return self.produced >= self.output_tokens


@dataclass
class Counters:
    """What is counted from the start on."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    preemptions: int = 0
    steps: int = 0


@dataclass
class Scheduler:
    """First come, first served; see the module's text."""

    costs: Costs = field(default_factory=Costs)
    limits: Limits = field(default_factory=Limits)
    waiting: deque[Sequence] = field(default_factory=deque)
    running: list[Sequence] = field(default_factory=list)
    counters: Counters = field(default_factory=Counters)
    _blocks: OrderedDict[int, None] = field(default_factory=OrderedDict)

    @property
    def used(self) -> int:
        """Return the tokens of the pool that running sequences hold."""
        return sum(s.own for s in self.running)

    def add(self, sequence: Sequence) -> None:
        """Queue a request; ValueError when it could never fit into the pool."""
        if len(sequence.prompt) + sequence.output_tokens > self.limits.kv_tokens:
            raise ValueError("the request is longer than the KV pool")
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a request, whether it waits, runs or is done."""
        for place in (self.waiting, self.running):
            if sequence in place:
                place.remove(sequence)

    def step(self) -> tuple[float, list[Sequence]]:
        """Do one step; return its seconds and the sequences that got one more token."""
        self._admit()
        prefilled = self._prefill()
        self._make_room()
        grown = [s for s in self.running if s.computed >= s.known]
        seconds = self._seconds(prefilled, len(grown))
        for sequence in grown:
            sequence.produced += 1
        self.counters.generation_tokens += len(grown)
        self.counters.steps += 1
        for sequence in [s for s in grown if s.done]:
            self.running.remove(sequence)
        return seconds, grown

    def _seconds(self, prefilled: int, decoding: int) -> float:
        c = self.costs
        read = self.used / 1000 * c.read_us_per_1000_kv_tokens
        work = prefilled * c.prefill_us_per_token + decoding * c.decode_us_per_sequence
        return (c.step_us + work + read) / 1e6

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.limits.max_num_seqs:
            sequence = self.waiting[0]
            cached = self._cached_prefix(sequence)
            if self.used + sequence.known - cached > self.limits.kv_tokens:
                return
            self.waiting.popleft()
            sequence.cached = sequence.computed = cached
            self.running.append(sequence)
            if not sequence.produced:
                self.counters.prompt_tokens += len(sequence.prompt)
                self.counters.prefix_queries += len(sequence.prompt)
                self.counters.cached_tokens += cached

    def _prefill(self) -> int:
        """Compute prompt chunks, and the newest token of sequences that decode, within the budget.

        Returns the prompt tokens computed.
        """
        budget, prefilled = self.limits.prefill_budget, 0
        for sequence in self.running:
            todo = sequence.known - sequence.computed
            if todo == 1 and sequence.produced:
                sequence.computed += 1  # the token of the step before: decoding, not prefill
                continue
            taken = min(todo, budget - prefilled)
            sequence.computed += taken
            prefilled += taken
            if taken and sequence.computed >= sequence.known:
                self._remember(sequence)
        return prefilled

    def _make_room(self) -> None:
        """Send the youngest sequences back to the queue while the pool is over-full."""
        while self.used > self.limits.kv_tokens and len(self.running) > 1:
            youngest = self.running.pop()
            youngest.cached = youngest.computed = 0
            self.waiting.appendleft(youngest)
            self.counters.preemptions += 1

    def _block_keys(self, prompt: tuple[int, ...]) -> list[int]:
        size = self.limits.block_size
        keys: list[int] = []
        for start in range(0, len(prompt) - size + 1, size):
            before = keys[-1] if keys else 0
            keys.append(hash((before, prompt[start : start + size])))
        return keys

    def _cached_prefix(self, sequence: Sequence) -> int:
        """Return how many prompt tokens are there already; the last token is always computed."""
        if not self.limits.prefix_cache:
            return 0
        found = 0
        for key in self._block_keys(sequence.prompt):
            if key not in self._blocks:
                break
            self._blocks.move_to_end(key)
            found += self.limits.block_size
        return min(
            found, (len(sequence.prompt) - 1) // self.limits.block_size * self.limits.block_size
        )

    def _remember(self, sequence: Sequence) -> None:
        if not self.limits.prefix_cache:
            return
        for key in self._block_keys(sequence.prompt):
            self._blocks[key] = None
            self._blocks.move_to_end(key)
        while len(self._blocks) * self.limits.block_size > self.limits.kv_tokens:
            self._blocks.popitem(last=False)
