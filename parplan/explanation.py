"""How the figures of a plan are made, with the user's own numbers: every part multiplies out, and the parts add up."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from parplan.attention import decode_attention, read_bytes
from parplan.calibration import Trait
from parplan.formats import Component
from parplan.hardware import Gpu
from parplan.layout import CUT_NAMES, GPU_CUTS, Layout, replica_gpus
from parplan.matrices import (
    LOGIT_PASSES,
    expert_work,
    experts_touched,
    head_work,
    launch_time,
    linear_work,
    scaling_time,
)
from parplan.memory import limits, profiled_encoder
from parplan.messages import (
    expert_messages,
    layer_messages,
    logit_messages,
    sequence_messages,
    stage_messages,
)
from parplan.mixers import Compressed, Latent, Mixer
from parplan.placement import Placement, Roofline
from parplan.planner import Plan
from parplan.problem import Problem
from parplan.products import Explanation, Factor, Part, Term, single
from parplan.provenance import Source
from parplan.serving import Prefill, prefill, serve
from parplan.step import decode_step, draft_time, waiting_share
from parplan.transformer import Block, Experts, Transformer
from parplan.work import ACTIVATION_BYTES, LOGIT_BYTES, block_share, cache_share

COMPONENT_NAMES: dict[Component, str] = {
    "embedding": "embedding",
    "attention": "attention",
    "attention_output": "output of attention",
    "indexer": "sparse index",
    "recurrent": "recurrent layers",
    "dense_ffn": "dense feed-forward",
    "routed_experts": "routed experts",
    "shared_experts": "shared experts",
    "router": "routers",
    "norms": "norms",
    "other": "other",
    "head": "output head",
    "vision": "vision tower",
    "mtp": "drafting layers",
}
READING, ARITHMETIC = "reading", "arithmetic"


def mixer_words(mixer: Mixer) -> str:
    """A kind of attention, as people name it."""
    window = mixer.cache.window
    return f"{mixer.kind}, window {window:,}" if window else mixer.kind


@dataclass(frozen=True)
class Pass:
    """One decode step of a plan: what its formulas are given."""

    problem: Problem
    plan: Plan

    @property
    def transformer(self) -> Transformer:
        """The model."""
        return self.problem.transformer

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.plan.layout

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.problem.gpu

    @cached_property
    def at(self) -> Placement:
        """Where it runs."""
        return Placement(self.problem.precision, self.layout, self.gpu, self.problem.engine)

    @cached_property
    def requests(self) -> float:
        """Running requests of one attention replica."""
        return max(1.0, float(self.plan.serving.running) / int(self.layout.data))

    @cached_property
    def sequences(self) -> float:
        """Requests of one micro-batch."""
        return max(1.0, self.requests / int(self.layout.pipeline))

    @property
    def queries(self) -> int:
        """Tokens of a request in a step, drafted ones included."""
        return self.problem.workload.draft + 1

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch."""
        return self.queries * self.sequences

    @property
    def kept(self) -> tuple[Factor, ...]:
        """Tokens a step yields, where it is more than one."""
        kept = self.problem.workload.tokens_per_step
        return (Factor(kept, "tokens a step yields", divides=True),) if kept != 1 else ()

    def term(self, *factors: Factor) -> Term:
        """A product, for each token the step yields."""
        return Term((*factors, *self.kept))


def reached(rate: float, *, unit: str, peak: float) -> Factor:
    """A rate that something is divided by, beside the one on paper."""
    return Factor(rate, unit, divides=True, of=peak)


def time_per_token(problem: Problem, plan: Plan) -> Explanation:
    """Time between two output tokens of one user: the decode step's parts, and other requests' prompts."""
    one = Pass(problem, plan)
    parts = (
        *_weight_parts(one),
        *_expert_parts(one),
        _attention_part(one),
        _head_part(one),
        *_message_parts(one),
        *_overhead_parts(one),
    )
    return Explanation(
        figure="Time per token",
        value=float(plan.serving.tpot),
        unit="s",
        parts=tuple(part for part in parts if part.value),
        sources=speed_sources(problem),
    )


def _weight_parts(one: Pass) -> Iterator[Part]:
    """Matrix products with weights every token uses, by component; and the activations between them."""
    at, held = one.at, dict[Component, float]()
    for count, block in one.transformer.kinds:
        for component, parameters in block_share(block, layout=one.layout).items():
            held[component] = held.get(component, 0.0) + count * float(parameters)
    for component, parameters in held.items():
        if component != "routed_experts" and parameters:
            weights, stored = Factor(parameters, "parameters"), at.precision.bytes_per_parameter(component)
            read = reached(float(at.weight_bandwidth(component)), unit="B/s", peak=one.gpu.bandwidth)
            peak = one.gpu.peaks[at.arithmetic(component)]
            rate = reached(float(at.product_rate(component)), unit="FLOP/s", peak=peak)
            sides = {
                READING: (one.term(weights, Factor(stored, "B"), read),),
                ARITHMETIC: (one.term(weights, Factor(2, "FLOP"), Factor(one.tokens, "tokens"), rate),),
            }
            yield Part(f"weights: {COMPONENT_NAMES[component]}", sides, linear_work)
    yield single(
        "activations between products",
        one.term(
            Factor(len(one.transformer.sequence), "layers"),
            Factor(at.speed.passes, "passes"),
            Factor(one.transformer.hidden * ACTIVATION_BYTES, "B"),
            Factor(one.tokens, "tokens"),
            reached(float(at.bandwidth), unit="B/s", peak=one.gpu.bandwidth),
        ),
        law=linear_work,
    )


def _side(one: Pass, amounts: tuple[Factor, ...], *, seconds: float, unit: str, peak: float) -> Term:
    """A product of amounts over the rate they are worked off at, which follows from how long that takes."""
    amount = Term(amounts).value
    return one.term(*amounts, reached(amount / seconds if seconds else peak, unit=unit, peak=peak))


def _expert_parts(one: Pass) -> Iterator[Part]:
    """Routed experts of the busiest GPU, by kind of layer."""
    everyone = int(one.layout.data) * one.tokens
    for count, block in one.transformer.kinds:
        if block.experts:
            work = expert_work(block.experts, at=one.at, tokens=everyone)
            yield _expert_part(one, block.experts, work, layers=count, tokens=everyone)


def _expert_part(one: Pass, experts: Experts, work: Roofline, *, layers: int, tokens: float) -> Part:
    at, groups = one.at, int(one.layout.expert)
    touched = experts_touched(experts, tokens=tokens, layout=one.layout, skew=at.speed.skew)
    each = Factor(float(experts.expert_parameters / one.layout.expert_tensor), "parameters of each")
    routed = experts.chosen * min(at.speed.imbalance, groups) / groups * tokens
    stored = Factor(at.precision.bytes_per_parameter("routed_experts"), "B")
    there = Factor(layers, "layers")
    read = (there, Factor(float(touched), "experts met"), each, stored)
    done = (there, Factor(routed, "tokens"), each, Factor(2, "FLOP"))
    peak = one.gpu.peaks[at.arithmetic("routed_experts")]
    memory, compute = layers * float(work.memory), layers * float(work.compute)
    sides = {
        READING: (_side(one, read, seconds=memory, unit="B/s", peak=one.gpu.bandwidth),),
        ARITHMETIC: (_side(one, done, seconds=compute, unit="FLOP/s", peak=peak),),
    }
    return Part("weights: routed experts", sides, expert_work)


def _attention_part(one: Pass) -> Part:
    """Attention over the cache, one product per kind of layer."""
    reading, arithmetic = [], []
    peak = one.gpu.peak("bf16")
    length = one.problem.workload.mean_length
    for count, block in one.transformer.kinds:
        if block.mixer:
            work = decode_attention(block.mixer, at=one.at, length=length, queries=one.queries)
            amount = cache_share(block.mixer, layout=one.layout) * read_bytes(
                block.mixer, one.problem.precision, length=length
            )
            layers, sequences = (
                Factor(count, f"layers ({mixer_words(block.mixer)})"),
                Factor(one.sequences, "requests"),
            )
            each, flop = float(work.memory), float(work.compute)
            rate = float(one.at.attention_rate)
            read = reached(float(one.at.cache_bandwidth), unit="B/s", peak=one.gpu.bandwidth)
            if amount and each:
                reading.append(one.term(layers, sequences, Factor(float(amount), "B"), read))
            if flop:
                per_second = reached(rate, unit="FLOP/s", peak=peak)
                arithmetic.append(one.term(layers, sequences, Factor(flop * rate, "FLOP"), per_second))
    return Part(
        "attention over the cache",
        {READING: tuple(reading), ARITHMETIC: tuple(arithmetic)},
        decode_attention,
    )


def _head_part(one: Pass) -> Part:
    """Output head and sampling."""
    at, vocabulary = one.at, one.transformer.vocabulary
    weights = Factor(vocabulary * one.transformer.hidden / int(one.layout.tensor), "parameters")
    stored = Factor(at.precision.bytes_per_parameter("head"), "B")
    read = reached(float(at.weight_bandwidth("head")), unit="B/s", peak=one.gpu.bandwidth)
    passes = Factor(vocabulary * LOGIT_BYTES * LOGIT_PASSES, "B")
    tokens = Factor(one.tokens, "tokens")
    rate = reached(float(at.product_rate("head")), unit="FLOP/s", peak=one.gpu.peaks[at.arithmetic("head")])
    sides = {
        READING: (
            one.term(weights, stored, read),
            one.term(passes, tokens, reached(float(at.bandwidth), unit="B/s", peak=one.gpu.bandwidth)),
        ),
        ARITHMETIC: (one.term(weights, Factor(2, "FLOP"), tokens, rate),),
    }
    return Part("output head and sampling", sides, head_work)


def _times(one: Pass, seconds: float, *, count: float, noun: str) -> Term:
    """So many equal times."""
    return one.term(Factor(count, noun), Factor(seconds / count if count else 0.0, "s"))


def _message_parts(one: Pass) -> Iterator[Part]:
    """Messages between GPUs; an idle link has no part."""
    at, layout, step = one.at, one.layout, one.plan.serving.decode
    kept = one.problem.workload.tokens_per_step
    summed = float(layer_messages(one.transformer, at=at, tokens=one.tokens))
    count = sum(
        layers
        * ((b.mixer is not None) + (b.dense is not None) + (b.experts is not None and layout.data == 1))
        for layers, b in one.transformer.kinds
    )
    logits = float(logit_messages(one.transformer, at=at, tokens=one.tokens))
    lengthwise = float(sequence_messages(one.transformer, at=at, tokens=one.tokens))
    yield single(
        f"sums between {layout.tensor} tensor ranks",
        _times(one, summed, count=count, noun="sums"),
        law=layer_messages,
    )
    yield single(
        "logits of all vocabulary parts", _times(one, logits, count=1, noun="gather"), law=logit_messages
    )
    yield single(
        f"parts of sequences between {layout.decode_context} ranks",
        _times(one, lengthwise, count=1, noun="exchange"),
        law=sequence_messages,
    )
    spread = sum(layers for layers, block in one.transformer.kinds if block.experts)
    yield single(
        f"tokens to experts on {layout.width} GPUs and back",
        _times(one, float(step.all_to_all) * kept, count=spread, noun="layers"),
        law=expert_messages,
    )
    yield single(
        f"between {layout.pipeline} stages",
        _times(one, float(step.send) * kept, count=int(layout.pipeline) - 1, noun="hops"),
        law=stage_messages,
    )


def _overhead_parts(one: Pass) -> Iterator[Part]:
    """What is neither the model's arithmetic, nor its memory traffic, nor its messages."""
    speed, step, workload = one.at.speed, one.plan.serving.decode, one.problem.workload
    kept = workload.tokens_per_step
    yield single(
        "starting kernels",
        *(
            one.term(Factor(count, f"layers ({_block_words(block)})"), Factor(seconds, "s"))
            for count, block in one.transformer.kinds
            if (seconds := float(launch_time(block, at=one.at)))
        ),
        law=launch_time,
    )
    yield single(
        "scaling block by block",
        *(
            one.term(Factor(count, f"layers ({_block_words(block)})"), Factor(seconds, "s"))
            for count, block in one.transformer.kinds
            if (seconds := float(scaling_time(block, at=one.at)))
        ),
        law=scaling_time,
    )
    yield single(
        "the engine's own work",
        one.term(Factor(speed.step, "s")),
        one.term(Factor(one.requests, "requests"), Factor(speed.request, "s")),
        law=decode_step,
    )
    yield single(
        "waiting for the fullest stage",
        one.term(Factor(float(step.bubble) * kept, "s")),
        law=waiting_share,
    )
    yield single(
        "drafting",
        _times(one, float(step.draft) * kept, count=workload.draft, noun="drafted tokens"),
        law=draft_time,
    )
    chunks = _chunks_per_token(one)
    yield single(
        "prompts of other requests",
        Term(
            (
                Factor(chunks, "chunks"),
                Factor(float(one.plan.serving.prefill) / chunks if chunks else 0.0, "s"),
            )
        ),
        law=serve,
    )


def _block_words(block: Block) -> str:
    """A kind of layer: its attention and its feed-forward part."""
    mixer = mixer_words(block.mixer) if block.mixer else ""
    return ", ".join(
        filter(None, (mixer, "experts" if block.experts else "", "dense" if block.dense else ""))
    )


def _prefill(one: Pass) -> Prefill:
    """One prompt's way through prefill."""
    problem, kept = one.problem, one.problem.workload.tokens_per_step
    told = limits(
        problem.settings,
        profile=problem.engine.memory,
        gpu=one.gpu,
        layout=one.layout,
        length=problem.workload.length,
    )
    return prefill(
        one.transformer,
        at=one.at,
        workload=problem.workload,
        step_tokens=told.batched_tokens,
        decode=one.plan.serving.decode.per(1 / kept),
    )


def _others(one: Pass) -> float:
    """Other requests for each attention replica."""
    return (float(one.plan.serving.running) - 1) / int(one.layout.data)


def _chunks_per_token(one: Pass) -> float:
    """Chunks of other requests' prompts for every token one user gets: each request needs its own once."""
    return _others(one) * float(_prefill(one).chunks) / one.problem.workload.output


def time_to_first_token(problem: Problem, plan: Plan) -> Explanation:
    """From sending the prompt to the first token: waiting, the prompt's own steps, and what is in their way."""
    one, serving = Pass(problem, plan), plan.serving
    prompt, kept = _prefill(one), problem.workload.tokens_per_step
    chunks, stages = float(prompt.chunks), int(one.layout.pipeline)
    waited, passes = float(serving.queued), 1 + (chunks - 1) / stages
    own, shared = float(prompt.latency), float(serving.prefill) * kept * float(prompt.met)
    rest = float(serving.ttft) - waited - own - shared
    noun = f"steps of {written_tokens(problem, chunks)} tokens"
    parts = (
        single(
            "waiting for room",
            Term(
                (
                    Factor(float(serving.waiting), "requests ahead"),
                    Factor(float(serving.requests_per_s), "a second", divides=True),
                )
            ),
        ),
        single("your prompt", Term((Factor(passes, noun), Factor(own / passes, "s"))), law=prefill),
        single("prompts of other requests", Term((Factor(shared, "s"),))),
        single("decode steps of other requests in between", *_in_between(one, rest)),
    )
    return Explanation(
        figure="Time to first token",
        value=float(serving.ttft),
        unit="s",
        parts=tuple(
            Part(part.name, part.sides, part.law or serve) for part in parts if abs(part.value) > 1e-12
        ),
        sources=speed_sources(problem),
    )


def _in_between(one: Pass, seconds: float) -> tuple[Term, ...]:
    """Time spent on others' decode steps, in steps."""
    step = float(one.plan.serving.decode.total) * one.problem.workload.tokens_per_step
    return (Term((Factor(seconds / step, "steps"), Factor(step, "s"))),) if step else ()


def written_tokens(problem: Problem, chunks: float) -> str:
    """Prompt tokens of one chunk that are not in the prefix cache."""
    return f"{problem.workload.new_tokens / chunks:,.0f}"


def tokens_per_second(problem: Problem, plan: Plan, *, replicas: int) -> Explanation:
    """Output tokens of all replicas: every running request yields its output in its time."""
    part = single("output", Term((*_replicas(replicas), *_yielded(problem, plan))), law=serve)
    return Explanation(
        figure="Tokens per second",
        value=float(plan.serving.tokens_per_s) * replicas,
        unit="tokens/s",
        parts=(part,),
        sources=speed_sources(problem),
    )


def tokens_per_second_per_gpu(problem: Problem, plan: Plan) -> Explanation:
    """Output tokens of one replica over its GPUs."""
    shared = Factor(plan.gpus, f"GPU{'s' * (plan.gpus != 1)}", divides=True)
    part = single("output", Term((*_yielded(problem, plan), shared)), law=serve)
    rate = float(plan.serving.tokens_per_s_per_gpu)
    return Explanation("Tokens per second and GPU", rate, "tokens/s", (part,), speed_sources(problem))


def _yielded(problem: Problem, plan: Plan) -> tuple[Factor, ...]:
    """What one replica yields a second: the output of all running requests in the time one of them lasts."""
    running, rate = float(plan.serving.running), float(plan.serving.requests_per_s)
    return (
        Factor(running, "requests at once"),
        Factor(problem.workload.output, "tokens"),
        Factor(running / rate, "s", divides=True),
    )


def _replicas(replicas: int) -> tuple[Factor, ...]:
    return (Factor(replicas, "replicas"),) if replicas > 1 else ()


def gpu_count(plan: Plan, *, replicas: int) -> Explanation:
    """GPUs of all replicas."""
    cuts = {name: getattr(plan.layout, field) for field, name in CUT_NAMES.items() if field in GPU_CUTS}
    factors = [Factor(size, f"{name} ranks") for name, size in cuts.items() if size > 1] or [Factor(1, "GPU")]
    part = single("ranks of all kinds", Term((*_replicas(replicas), *factors)), law=replica_gpus)
    return Explanation("GPUs", float(plan.gpus * replicas), "GPUs", (part,), ())


def traits(problem: Problem) -> Iterator[Trait]:
    """What a plan has that only some of an engine's constants are about."""
    transformer, profile = problem.transformer, problem.engine.memory
    if any(mixer.cache.index for mixer in transformer.mixers):
        yield "index"
    if any(isinstance(mixer, Latent) and mixer.sparse_top_k for mixer in transformer.mixers):
        yield "latents"
    if any(mixer.cache.window for mixer in transformer.mixers):
        yield "windows"
    if any(isinstance(mixer, Compressed) for mixer in transformer.mixers):
        yield "compressed"
    if transformer.is_moe and profile.pads(problem.precision.weights["routed_experts"]):
        yield "padding"
    if profiled_encoder(transformer, profile=profile):
        yield "images"


def engine_sources(problem: Problem) -> tuple[Source, ...]:
    """Where those constants of the engine were read that a plan rests on."""
    where = problem.engine.sources_where
    return (
        *problem.engine.sources,
        *(source for trait in traits(problem) for source in where.get(trait, ())),
    )


def speed_sources(problem: Problem) -> tuple[Source, ...]:
    """Where the rates and fixed times come from."""
    rates = problem.gpu.sources_of("bandwidth", "peaks", "link", "network")
    return tuple(dict.fromkeys((*rates, *engine_sources(problem))))
