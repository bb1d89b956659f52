"""Speed of the vectorised plan.

    make bench

On one core, in one run and in processor time: how it grows with the number of points (layouts times batches), what one
full plan takes (every layout up to 64 GPUs at 32 batches: layouts found, memory, speed, rules), and both as ratios to
an empty numpy call and to the same work done point by point; and what the best layout on every GPU of the catalogue
takes. Nothing is kept from one call to the next.
"""

# ruff: noqa: T201

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import time
from collections.abc import Callable

import numpy as np

from parplan import Scenario, catalog
from parplan.across import plans_across
from parplan.layout import Layout
from parplan.planner import evaluate, solve
from parplan.scenario import problem_of
from parplan.search import candidate_layouts
from parplan.units import MS, US

SCENARIO = Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="h200-sxm", budget=64)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Points to grow through."""
ALONE = 200
"""Points done one by one."""
REPEATS = 15


def best_time(work: Callable[[], object], *, repeats: int = REPEATS) -> float:
    """Seconds of the processor, of the fastest of several runs: what others do on the machine does not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def resized(layout: Layout, *, number: int) -> Layout:
    """The same layouts over and over, as many as asked for."""
    return layout[np.arange(number) % layout.shape[0]].column()


def main() -> None:
    """Measure and print."""
    problem = problem_of(SCENARIO)
    layout, result = candidate_layouts(problem), solve(problem)
    batches, points = result.concurrency, result.shape[0] * result.shape[1]
    print(f"{problem.transformer.name} on {problem.gpu.label}, {problem.engine.label}\n")

    one = np.asarray(1.0)
    empty = best_time(lambda: [np.add(one, one) for _ in range(1000)]) / 1000

    def one_by_one() -> None:
        for index in np.linspace(0, points - 1, ALONE).astype(int):
            row, column = divmod(int(index), batches.size)
            evaluate(problem, layout=layout.one(row), concurrency=batches[column])

    alone = best_time(one_by_one, repeats=3) / ALONE
    print(f"{'points':>10} {'ms':>9} {'points/s':>12} {'faster than one by one':>24}")
    for size in SIZES:
        many = resized(layout, number=size // batches.size)
        count = many.shape[0] * batches.size
        taken = best_time(lambda many=many: evaluate(problem, layout=many, concurrency=batches), repeats=7)  # type: ignore[misc]
        print(f"{count:>10,} {taken / MS:>9.1f} {count / taken:>12,.0f} {alone * count / taken:>22,.0f} x")

    full = best_time(lambda: solve(problem))
    print(f"\none full plan, {result.shape[0]} layouts x {result.shape[1]} batches = {points:,} points")
    print(f"  time                       {full / MS:>12.2f} ms")
    print(f"  points per second          {points / full:>12,.0f}")
    print(f"  an empty numpy call        {empty / US:>12.2f} us; the plan takes {full / empty:,.0f} of them")
    print(f"  one point alone            {alone / MS:>12.2f} ms; the plan takes {full / alone:,.1f} of them")
    print(f"  faster than one by one     {alone * points / full:>12,.0f} x")

    print(f"\nthe best layout on each of {len(catalog.gpus())} GPUs")
    for scenario in (Scenario(), SCENARIO.model_copy(update={"budget": 0})):
        taken = best_time(lambda scenario=scenario: plans_across(scenario))  # type: ignore[misc]
        print(f"  {scenario.model:<34} {taken / MS:>5.0f} ms")


if __name__ == "__main__":
    main()
