"""The scenario: everything the user chose, as one frozen value that links, widgets, shell and tests all speak."""

from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from typing import Annotated, Any

from pydantic import Field

from parplan import catalog
from parplan.advice import Advice, advise, fleet_verdict
from parplan.calibration import SCALE_LIMITS, Engine
from parplan.confidence import Confidence, confidence, tpot_error
from parplan.cost import ANSWERED, BORNE, COME, Bill, Work, bills, purchases_for
from parplan.formats import Precision
from parplan.hardware import Gpu, Instance
from parplan.hub import transformer_of_size
from parplan.instances import Purchase, discounted, next_power_of_two, own_machines, weight_bytes
from parplan.layout import CUT_NAMES, MOST_GPUS
from parplan.memory import Settings
from parplan.objections import starts
from parplan.own_gpu import OWN, unpacked_gpu
from parplan.own_model import LONGEST_CONFIG, described, unpacked
from parplan.planner import Plan, Result, solve
from parplan.problem import Problem, chosen_precision
from parplan.provenance import Value
from parplan.traffic import Traffic, traffic_asked_for
from parplan.transformer import Transformer
from parplan.units import GIB, MS, Number, counted, written_rate, written_request_rate
from parplan.workload import MOST_AT_ONCE, OBJECTIVES, Objective, Workload

SCHEMA = 1
"""Version of the link format; raised when a field changes its name or meaning."""

BY_SIZE, BY_CONFIG, NATIVE, AUTO = "size", "config", "native", "auto"
"""Words that stand for something other than a catalogue name."""
EIGHT_BITS = "fp8"
"""What "auto" makes of weights that are published in 16 bits."""
OVERHEADS = ("activations", "non_torch", "graphs")
"""Overheads that can be taken over from a log."""
TRIED_GPUS = 64
"""Most GPUs tried when the user sets no limit."""
BILLION = 1e9
UNPRICED = "No price is known for machines with so many of this GPU."

Milliseconds = Annotated[float, Field(ge=0, le=3_600_000, allow_inf_nan=False)]
PREDICTED = -1.0
"""Stands for an overhead nobody measured."""
Overhead = Annotated[float, Field(ge=PREDICTED, le=1000, allow_inf_nan=False)]
Cut = Annotated[int, Field(ge=0, le=MOST_GPUS)]
Scale = Annotated[float, Field(ge=SCALE_LIMITS[0], le=SCALE_LIMITS[1], allow_inf_nan=False)]


class Scenario(Value):
    """What to serve, on what, for whom. Field names are the keys of a link."""

    model: str = "meta-llama/Llama-3.3-70B-Instruct"
    """Hub-style id of a model in the catalogue; "size" for a model given by its size, "config" for a config.json."""
    size: float = Field(default=70, ge=0.5, le=2000, allow_inf_nan=False)
    """Total parameters in billions, when the model is given by its size."""
    active: float = Field(default=0, ge=0, le=2000, allow_inf_nan=False)
    """Active parameters in billions of a mixture of experts given by its size. 0: a dense model."""
    config: str = Field(default="", max_length=LONGEST_CONFIG)
    """A config.json, packed by `own_model.packed`, when the model is given by one."""
    weights: str = AUTO
    """Format of the weights. "native": as the checkpoint is published. "auto": the same where it is published
    quantised, else fp8 where the engine loads that on the GPU, else as published."""
    kv: str = "auto"
    """Format of the KV cache, or "auto": as the checkpoint asks for, else bf16."""
    gpu: str = "h100-sxm"
    """GPU type; "own" for one that `own_gpu` describes."""
    own_gpu: str = Field(default="", max_length=4000)
    """A GPU of your own, packed by `packed_gpu`."""
    engine: str = "vllm"
    """Inference engine whose measured overheads apply; "ideal" is pure roofline."""
    concurrency: int = Field(default=64, ge=1, le=MOST_AT_ONCE)
    """Requests one replica has in hand at once (the batch)."""
    prompt: int = Field(default=1024, ge=1, le=2_000_000)
    """Prompt tokens of a mean request."""
    output: int = Field(default=1024, ge=1, le=200_000)
    """Output tokens of a mean request."""
    ttft: Milliseconds = 0
    """Target for the time to first token, ms. 0: no target."""
    tpot: Milliseconds = 0
    """Target for the time per output token, ms. 0: no target."""
    objective: str = "cost"
    """What the best layout is, of those that hold every request and meet the targets. "cost": the one with the fewest
    GPUs to buy; "throughput": the one that delivers the most tokens/s per GPU when its replicas are filled up as far as
    memory and targets allow; "latency": the one with the shortest time per output token, then to the first."""
    prefix: float = Field(default=0, ge=0, le=95, allow_inf_nan=False)
    """Share of prompt tokens found in the prefix cache, percent."""
    draft: int = Field(default=0, ge=0, le=16)
    """Tokens drafted per request and step (speculative decoding, MTP). 0: none."""
    acceptance: float = Field(default=78, ge=0, le=100, allow_inf_nan=False)
    """Share of drafted tokens that are accepted when those before them were, percent; depends on what is written.
    DeepSeek-R1 keeps 2.82 tokens of a step that drafts three: 78 % (TensorRT-LLM tech blog 1)."""
    memory_scale: Scale = 1
    """Memory rates over those the engine was fitted to, from your own measurements. 1: as fitted."""
    compute_scale: Scale = 1
    """Arithmetic rates over those the engine was fitted to. 1: as fitted."""
    overhead_scale: Scale = 1
    """Launches, latencies and the engine's own work over what was fitted. 1: as fitted."""
    budget: int = Field(default=0, ge=0, le=MOST_GPUS)
    """Most GPUs one replica may use. 0: chosen for you, enough for the model and a step beyond."""
    utilization: float = Field(default=0, ge=0, le=100, allow_inf_nan=False)
    """Share of GPU memory the engine takes, percent. 0: the engine's default."""
    slots: int = Field(default=0, ge=0, le=65_536)
    """Sequences one data rank runs at once (vLLM max_num_seqs). 0: the engine's default, or as many as it takes for all
    requests where that is more; the launch command says so then."""
    step_tokens: int = Field(default=0, ge=0, le=10_000_000)
    """Tokens of one step (vLLM max_num_batched_tokens). 0: the engine's default."""
    images: bool = True
    """Take images and sound, where the model has towers for them. Off: the engine is told to serve text alone, loads no
    towers and makes no room for images."""
    activations: Overhead = PREDICTED
    """Activation peak as a log states it, GiB per GPU. Left out (-1 in a link): predicted."""
    non_torch: Overhead = PREDICTED
    """Communication buffers and libraries as a log states them, GiB per GPU. Left out (-1 in a link): predicted."""
    graphs: Overhead = PREDICTED
    """CUDA graphs as a log states them, GiB per GPU. Left out (-1 in a link): predicted."""
    replicas: int = Field(default=1, ge=1, le=1000)
    """Copies of the whole layout; they change requests per second and nothing else."""
    rate: float = Field(default=0, ge=0, le=100_000, allow_inf_nan=False)
    """Requests per second that come, over all replicas, at random times. 0: not asked."""
    peak: float = Field(default=1, ge=1, le=100, allow_inf_nan=False)
    """Busiest over mean requests per second; replicas are counted for the busiest time."""
    discount: float = Field(default=0, ge=0, le=100, allow_inf_nan=False)
    """Percent you get off list prices."""
    gpu_hour: float = Field(default=0, ge=0, le=1000, allow_inf_nan=False)
    """Your own price of the chosen GPU, USD per GPU and hour, in place of list prices. 0: list prices."""
    tensor: Cut = 0
    """Fix the tensor-parallel width. 0: try all."""
    data: Cut = 0
    """Fix how often attention is repeated (attention data parallelism). 0: try all."""
    pipeline: Cut = 0
    """Fix the number of pipeline stages. 0: try all."""
    expert: Cut = 0
    """Fix the number of expert groups. 0: try all."""
    context: Cut = 0
    """Fix the context-parallel width of prefill. 0: try all."""
    redundant: int = Field(default=0, ge=0, le=1024)
    """Copies of busy experts in every layer, over all GPUs together, that even out the load (EPLB). 0: none."""
    decode_context: Cut = 0
    """Fix how many ways a tensor group cuts the KV cache along the sequence. 0: try all."""

    def changed(self) -> dict[str, Any]:
        """The fields that differ from the defaults."""
        return {name: value for name, value in self if value != Scenario.model_fields[name].default}

    def on(self, gpu: str) -> "Scenario":
        """The same on another GPU; a price of one's own stays with the GPU it was given for."""
        return self.model_copy(update={"gpu": gpu} | ({} if gpu == self.gpu else {"gpu_hour": 0.0}))

    def work(self, requests_per_s: Number, *, named: str = ANSWERED) -> Work:
        """So many of its requests a second, as what machines are paid for.

        Args:
            requests_per_s: of all replicas on the machines.
            named: what that rate is.
        """
        return Work(requests_per_s, self.prompt, self.output, named)


@dataclass(frozen=True)
class Answer:
    """What parplan says to a scenario."""

    scenario: Scenario
    result: Result
    advice: Advice

    @property
    def offers(self) -> tuple[Instance, ...]:
        """Machines to have, at the prices the user pays."""
        return offers(self.scenario, gpu=self.result.problem.gpu)

    @cached_property
    def traffic(self) -> Traffic | None:
        """The recommended layout before the rate asked for, on as many replicas as it takes; without a rate, on those
        planned. None: no layout runs. Looked for when somebody asks."""
        best, asked = self.advice.recommended, self.scenario
        if best is None:
            return None
        return traffic_asked_for(
            self.result, best.index, rate=asked.rate, peak=asked.peak, replicas=asked.replicas
        )

    @property
    def borne(self) -> Traffic | None:
        """The rate asked for, and as many replicas as bear it, where that is what the answer speaks of. None: nobody
        asked for a rate, or somebody did for a number of replicas; nothing does the job, or bears any rate."""
        best, found = self.advice.recommended, self.traffic if self.scenario.rate else None
        if self.scenario.replicas > 1 or not (best and best.does_job and found and found.replica.bearable):
            return None
        return found

    @property
    def replicas(self) -> int:
        """Replicas the answer speaks of: those asked for, or those that bear the rate."""
        return self.borne.replicas if self.borne else self.scenario.replicas

    @property
    def gpus(self) -> int:
        """GPUs of all replicas; 0: nothing runs."""
        best = self.advice.recommended
        return best.gpus * self.replicas if best else 0

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of all replicas with every request at once; 0: nothing runs."""
        best = self.advice.recommended
        return float(best.serving.tokens_per_s) * self.replicas if best else 0.0

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        best, found = self.advice.recommended, self.borne
        if best is None or found is None:
            return self.advice.verdict
        return fleet_verdict(
            self.result, best, replicas=found.replicas, asked=found.rate_words, pace=found.pace
        )

    @property
    def purchases(self) -> tuple[Purchase, ...]:
        """Machines for all replicas of `traffic`, cheapest first, unpriced last."""
        if self.traffic is None:
            return ()
        gpus = self.traffic.replica.layout.gpus
        return purchases_for(self.advice.purchases, replicas=self.traffic.replicas, gpus=int(gpus))

    def bills(self, rate: float) -> tuple[Bill, ...]:
        """What those machines cost while all replicas together answer so many requests per second, cheapest first;
        those without a price are left out."""
        if self.traffic is None:
            return ()
        work = self.scenario.work(rate, named=COME if rate == self.scenario.rate else BORNE)
        return bills(self.purchases, replicas=self.traffic.replicas, work=work)

    @property
    def load_words(self) -> str:
        """What the rate asked for takes, as a sentence or two; empty without a rate or a layout."""
        if not self.scenario.rate or self.traffic is None:
            return ""
        return self.traffic.words(shown=self.replicas)

    @property
    def fleet_words(self) -> str:
        """What all replicas for the rate asked for cost, as a sentence; empty without a rate that is borne."""
        if not self.scenario.rate or self.traffic is None or not self.traffic.replica.bearable:
            return ""
        paid = next(iter(self.bills(self.scenario.rate)), None)
        if paid is None:
            return UNPRICED
        machine = paid.purchase.instance
        return (
            f"All replicas cost from {paid.cost.per_hour:,.2f} USD/h, {paid.cost.per_million_output:,.2f} USD per "
            f"million output tokens at the mean rate: {paid.purchase.count} × {machine.provider} {machine.name}."
        )

    @cached_property
    def leaner(self) -> "Answer | None":
        """The same planned for as many requests at once as the rate keeps in hand. None: without a rate, and where that
        takes no fewer GPUs."""
        asked = self.scenario
        found = self.traffic if asked.rate else None
        if found is None or not found.replica.bearable or found.at_once >= asked.concurrency:
            return None
        other = plan(asked.model_copy(update={"concurrency": found.at_once}))
        fewer = other.traffic
        if fewer is None or not fewer.replica.bearable or fewer.busiest.gpus >= found.busiest.gpus:
            return None
        return other

    @property
    def leaner_words(self) -> str:
        """That fewer requests at once than were asked for would take fewer GPUs; empty where they would not."""
        other = self.leaner
        found = self.traffic if other else None
        if other is None or other.traffic is None or found is None:
            return ""
        fleet, asked = other.traffic, self.scenario.concurrency
        size = f"{fleet.replicas:,} × {fleet.replica.layout} on {counted(int(fleet.busiest.gpus), 'GPU')}"
        return (
            f"About {written_rate(float(found.busiest.in_hand))} in hand at this rate; {asked:,} at once were asked "
            f"for. With room for {other.scenario.concurrency:,} the rate takes {size}, not {int(found.busiest.gpus):,}."
        )

    def confidence(self, found: Plan) -> Confidence | None:
        """How far the times of one of its plans may be off; None for a bound."""
        return confidence(self.result.problem, layout=found.layout)


def gpu_asked_for(scenario: Scenario) -> Gpu:
    """The GPU a scenario asks for: from the catalogue, or as the user describes it.

    Raises:
        UnknownNameError: the catalogue has no such GPU.
        OwnGpuError: a description that cannot be used.
    """
    if scenario.gpu == OWN:
        return unpacked_gpu(scenario.own_gpu)
    return catalog.named("GPU", scenario.gpu, catalog.gpus())


def objective_asked_for(scenario: Scenario) -> Objective:
    """The objective a scenario asks for.

    Raises:
        UnknownNameError: there is no such objective.
    """
    for name in OBJECTIVES:
        if name == scenario.objective:
            return name
    raise catalog.UnknownNameError("objective", scenario.objective, OBJECTIVES)


def offers(scenario: Scenario, *, gpu: Gpu) -> tuple[Instance, ...]:
    """Machines to have, at the prices the user pays: the one place where discounts and own prices come in.

    Args:
        scenario: the prices.
        gpu: the scenario's GPU; a price of one's own is for it alone.
    """
    listed = discounted(catalog.instances(), discount=scenario.discount / 100)
    if not scenario.gpu_hour and gpu.name != OWN:
        return listed
    own = own_machines(gpu, gpu_hour=scenario.gpu_hour, today=date.today())
    return (*own, *(one for one in listed if one.gpu != gpu.name))


def asked_rate(scenario: Scenario) -> str:
    """The rate asked for, in words; empty without one.

    >>> asked_rate(Scenario(rate=1)), asked_rate(Scenario(rate=2.5)), asked_rate(Scenario())
    ('1 request per second', '2.5 requests per second', '')
    """
    if not scenario.rate:
        return ""
    return written_request_rate(scenario.rate)


def list_terms(scenario: Scenario) -> str:
    """What the prices of providers are, as a sentence.

    >>> list_terms(Scenario()), list_terms(Scenario(discount=30))
    ('List prices on demand.', '30 % off list prices on demand.')
    """
    return (
        f"{scenario.discount:g} % off list prices on demand."
        if scenario.discount
        else "List prices on demand."
    )


def price_terms(scenario: Scenario) -> str:
    """What the prices of the scenario's GPU are, as a sentence.

    >>> price_terms(Scenario()), price_terms(Scenario(gpu_hour=2))
    ('List prices on demand.', 'Your own price: 2.00 USD per GPU and hour.')
    >>> price_terms(Scenario(discount=30, gpu_hour=2))
    'Your own price: 2.00 USD per GPU and hour; the discount of 30 % is for list prices and not taken off it.'
    """
    if scenario.gpu_hour:
        off = (
            f"; the discount of {scenario.discount:g} % is for list prices and not taken off it"
            if scenario.discount
            else ""
        )
        return f"Your own price: {scenario.gpu_hour:,.2f} USD per GPU and hour{off}."
    if scenario.gpu == OWN:
        return "Your own hardware: give a price per GPU and hour to see what tokens cost."
    return list_terms(scenario)


def transformer_asked_for(scenario: Scenario) -> Transformer:
    """The model a scenario asks for: from the catalogue, or made up from its size.

    Raises:
        UnknownNameError: the catalogue has no such model.
        ConfigError: a packed config that describes no model.
    """
    if scenario.model == BY_CONFIG:
        return described(unpacked(scenario.config))
    if scenario.model == BY_SIZE:
        active = scenario.active * BILLION if scenario.active else None
        return transformer_of_size(scenario.size * BILLION, active=active)
    return catalog.transformer(scenario.model)


def leaves_out_towers(transformer: Transformer, *, engine: Engine) -> bool:
    """Whether there are towers, and the engine can be told to do without them."""
    return engine.memory.text_only and transformer.vision > 0


def default_budget(transformer: Transformer, precision: Precision, *, gpu: Gpu) -> int:
    """GPUs to try when the user sets no limit: a node, or twice what the weights fill; `TRIED_GPUS` at most."""
    fills = next_power_of_two(float(weight_bytes(transformer, precision)) / gpu.memory)
    return int(min(max(gpu.node, 2 * fills), TRIED_GPUS))


def settings_of(scenario: Scenario) -> Settings:
    """Engine settings a scenario overrides, and overheads it takes from a log."""
    overheads = {name: getattr(scenario, name) for name in OVERHEADS}
    return Settings(
        utilization=scenario.utilization / 100 or None,
        max_num_seqs=scenario.slots or None,
        at_once=scenario.concurrency,
        max_batched_tokens=scenario.step_tokens or None,
        drafts=scenario.draft,
        prefix_caching=scenario.prefix > 0,
        redundant_experts=scenario.redundant,
        **{name: amount * GIB for name, amount in overheads.items() if amount >= 0},
    )


def precision_of(scenario: Scenario, *, transformer: Transformer, gpu: Gpu, engine: Engine) -> Precision:
    """The formats a scenario asks for, "auto" resolved for a GPU and an engine.

    Raises:
        UnknownNameError: a format the catalogue does not know.
    """
    formats = catalog.formats()
    kv = None if scenario.kv == AUTO else catalog.named("KV format", scenario.kv, catalog.kv_formats())
    stored = partial(chosen_precision, transformer, kv=kv, formats=formats)
    if scenario.weights == NATIVE:
        return stored(weights=None)
    if scenario.weights != AUTO:
        return stored(weights=catalog.named("weight format", scenario.weights, formats))
    eight_bits = stored(weights=formats[EIGHT_BITS])
    narrowed = not transformer.native and starts(transformer, precision=eight_bits, gpu=gpu, engine=engine)
    return eight_bits if narrowed else stored(weights=None)


def problem_of(scenario: Scenario) -> Problem:
    """A scenario with its names resolved.

    Raises:
        UnknownNameError: a name the catalogue does not know.
        OwnGpuError: a GPU of one's own that cannot be used.
    """
    gpu = gpu_asked_for(scenario)
    engine = catalog.named("engine", scenario.engine, catalog.engines())
    asked = transformer_asked_for(scenario)
    text_only = not scenario.images and leaves_out_towers(asked, engine=engine)
    transformer = asked.text_only if text_only else asked
    precision = precision_of(scenario, transformer=transformer, gpu=gpu, engine=engine)
    return Problem(
        transformer=transformer,
        precision=precision,
        gpu=gpu,
        engine=engine.scaled(
            memory=scenario.memory_scale, compute=scenario.compute_scale, overhead=scenario.overhead_scale
        ),
        workload=Workload(
            prompt=scenario.prompt,
            output=scenario.output,
            concurrency=scenario.concurrency,
            prefix_hit=scenario.prefix / 100,
            draft=scenario.draft,
            acceptance=scenario.acceptance / 100,
            ttft=scenario.ttft * MS or None,
            tpot=scenario.tpot * MS or None if scenario.output > 1 else None,
        ),
        settings=settings_of(scenario),
        budget=scenario.budget or default_budget(transformer, precision, gpu=gpu),
        fixed={name: size for name in CUT_NAMES if (size := getattr(scenario, name))},
        objective=objective_asked_for(scenario),
        replicas=scenario.replicas,
        text_only=text_only,
        busiest=scenario.rate * scenario.peak,
    )


def plan(scenario: Scenario) -> Answer:
    """The front door: where memory goes, the smallest thing to buy, every layout's speed, one recommendation.

    Raises:
        UnknownNameError: a name the catalogue does not know, with the nearest it does.
    """
    result = solve(problem_of(scenario))
    found = advise(
        result, instances=offers(scenario, gpu=result.problem.gpu), error=partial(tpot_error, result.problem)
    )
    return Answer(scenario=scenario, result=result, advice=found)
