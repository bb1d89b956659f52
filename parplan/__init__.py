"""parplan: how many GPUs, which ones, and how to cut a language model across them.

The front door is `plan`: a `Scenario` in, an `Answer` out. The command line and the page use only that door.
"""

from parplan.scenario import Answer, Scenario, plan

__all__ = ["LAYERS", "Answer", "Scenario", "__version__", "plan"]

__version__ = "0.3.1"

LAYERS: tuple[str, ...] = (
    # values
    "units",
    "arrays",
    "provenance",
    "formats",
    "hardware",
    "mixers",
    "transformer",
    "support",
    "workload",
    "layout",
    "calibration",
    # formulas
    "work",
    "seating",
    "collectives",
    "drafting",
    "allocator",
    "memory",
    "problem",
    "fit",
    "placement",
    "matrices",
    "attention",
    "messages",
    "step",
    "serving",
    "disaggregation",
    "replicas",
    "waiting",
    "lockstep",
    "load",
    "instances",
    "cost",
    "fleet",
    # decisions
    "objections",
    "search",
    "planner",
    "choice",
    "networks",
    "ladder",
    "runner_up",
    "advice",
    "comparison",
    "products",
    "explanation",
    "memory_explanation",
    "balance",
    "purchase_explanation",
    "topology",
    "whatif",
    "traffic",
    "load_explanation",
    # the outside world
    "packing",
    "own_gpu",
    "hub",
    "own_model",
    "catalog",
    "confidence",
    "scenario",
    "across",
    "ways_out",
    "facts",
    "links",
    "shortlist",
    "export",
    "report",
    "webpage",
    "validate",
    "refit",
    "logs",
    "commands",
    "__main__",
    "ui",
)
"""One order of layers, top to bottom: a module imports only what stands before it."""
