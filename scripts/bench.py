"""Speed of the vectorised plan: `make bench`.

Prints layout-points per second, the time of one full plan (every layout up to 64 GPUs at 32 batches), both as ratios
to an empty numpy call and to the same work done point by point, and how time grows with the number of points.
"""

import time
from collections.abc import Callable

import numpy as np

from parplan import Scenario
from parplan.layout import Layout
from parplan.planner import candidate_layouts, evaluate, solve
from parplan.scenario import problem_of

REPEATS = 15


def best_time(work: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def tiled(layout: Layout, times: int) -> Layout:
    """The same layouts many times over."""
    return layout[np.tile(np.arange(layout.shape[0]), times)]


def main() -> None:
    """Measure and print."""
    scenario = Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="h200-sxm", budget=64)
    problem = problem_of(scenario)
    layout, result = candidate_layouts(problem), solve(problem)
    result.shape[0] * result.shape[1]
    best_time(lambda: [np.add(1.0, 1.0) for _ in range(1000)]) / 1000
    best_time(lambda: solve(problem))
    best_time(lambda: evaluate(problem, layout=layout.one(0), concurrency=np.asarray(64)))
    for times in (1, 4, 16, 64, 256):
        many = tiled(layout, times).column()
        best_time(lambda many=many: evaluate(problem, layout=many, concurrency=result.concurrency))
        count = many.shape[0] * result.concurrency.size
        if count > 1_000_000:
            break


if __name__ == "__main__":
    main()
