"""Time of one step of an engine: a decode step or a chunk of prefill, by what it is spent on.

Per operation a roofline: the longer of arithmetic and memory traffic, at the shares a calibrated engine reaches.
Around it what does not overlap: launch and ramp of kernels, messages between GPUs, and the engine itself.
Shapes: layouts come as [layouts, 1], batches as [batches]; results broadcast to [layouts, batches].
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from parplan.attention import attention_work, decode_attention, prefill_attention
from parplan.drafting import draft_layers, last_layer_parameters
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.matrices import expert_work, head_work, launch_time, linear_work, scaling_time
from parplan.messages import (
    context_messages,
    expert_messages,
    hidden_time,
    layer_messages,
    logit_messages,
    sequence_messages,
    stage_messages,
)
from parplan.placement import Placement, Roofline, over_layers
from parplan.transformer import Transformer
from parplan.units import Count, Number, Seconds, Tokens
from parplan.work import ACTIVATION_BYTES

Bound: TypeAlias = Literal["compute", "memory", "communication", "overhead"]
BOUNDS: tuple[Bound, ...] = ("compute", "memory", "communication", "overhead")


@dataclass(frozen=True)
class Step:
    """Seconds of one step by part. It crosses all pipeline stages: every part is a sum over stages."""

    linear: Seconds
    """Matrix products with weights every token uses, and the activations between them."""
    attention: Seconds
    """Attention over the cache, and recurrences over their state."""
    experts: Seconds
    """Matrix products of routed experts."""
    all_reduce: Seconds
    """Tensor-parallel sums, logits and parts of sequences."""
    all_to_all: Seconds
    """Tokens to experts on other ranks and back."""
    send: Seconds
    """Between pipeline stages and context ranks."""
    launch: Seconds
    """Launch, ramp and tail of kernels, and the small kernels between the large ones."""
    head: Seconds
    """Output head and sampling."""
    engine: Seconds
    """Scheduling and input preparation."""
    bubble: Seconds
    """Waiting for the fullest pipeline stage."""
    compute: Seconds
    """Arithmetic of all of it."""
    memory: Seconds
    """Memory traffic of all of it."""
    idle: Seconds
    """How long arithmetic waits for weights: what tokens of other requests in the same step could use."""
    draft: Seconds = 0.0
    """Drafting the tokens the next step verifies."""

    def per(self, tokens: Tokens) -> "Step":
        """The same step's times for each of the tokens it yields."""
        return Step(**{field.name: getattr(self, field.name) / tokens for field in fields(self)})

    @cached_property
    def communication(self) -> Seconds:
        """Messages between GPUs."""
        return self.all_reduce + self.all_to_all + self.send

    @cached_property
    def overhead(self) -> Seconds:
        """What is neither arithmetic, memory traffic nor messages of the model itself."""
        return self.launch + self.engine + self.bubble + self.draft

    @cached_property
    def total(self) -> Seconds:
        """The whole step."""
        return self.linear + self.attention + self.experts + self.head + self.communication + self.overhead

    @property
    def least(self) -> Seconds:
        """Lower bound: arithmetic, memory traffic and messages overlap fully, nothing else takes time."""
        return np.maximum(np.maximum(self.compute, self.memory), self.communication)

    @property
    def most(self) -> Seconds:
        """Upper bound: nothing overlaps."""
        return self.compute + self.memory + self.communication + self.overhead

    @property
    def bound(self) -> Any:
        """Index into `BOUNDS` of what takes most time."""
        return np.argmax(np.stack(np.broadcast_arrays(*(getattr(self, name) for name in BOUNDS))), axis=0)


def waiting_share(transformer: Transformer, *, layout: Layout, in_flight: Count) -> Number:
    """Time a token waits in a pipeline over its time in all stages: the fullest stage sets the pace.

    max(0, micro-batches in flight x layers of the fullest stage / layers - 1)
    """
    layers = len(transformer.sequence)
    fullest = np.ceil(layers / np.asarray(layout.pipeline))
    return np.maximum(0.0, in_flight * (fullest / layers) - 1)


def step_of(
    transformer: Transformer,
    *,
    at: Placement,
    tokens: Tokens,
    busy: Count,
    sampled: Tokens,
    attention: Roofline,
    launching: float,
    forwarded: bool,
    engine: Seconds,
    in_flight: Count,
) -> Step:
    """One pass of a micro-batch through all layers of all stages.

    Args:
        tokens: of one attention replica.
        busy: attention replicas that have as many; the others have none.
        sampled: positions the head is applied to.
        attention: of all layers, on one rank of every stage.
        launching: factor on the launch of kernels.
        forwarded: see `expert_messages`.
        engine: seconds the engine spends around the pass.
        in_flight: micro-batches in the pipeline.
    """
    products = linear_work(transformer, at=at, tokens=tokens)
    activations = len(transformer.sequence) * at.speed.passes * transformer.hidden * ACTIVATION_BYTES
    streamed = activations / at.bandwidth * tokens
    everyone = busy * tokens
    routed = [
        (count, expert_work(block.experts, at=at, tokens=everyone))
        for count, block in transformer.kinds
        if block.experts
    ]
    nothing = np.zeros(np.shape(at.layout.tensor))
    head = head_work(transformer, at=at, tokens=sampled)
    linear = cast(Seconds, sum((part.time for part in products), start=streamed))
    experts = cast(Seconds, sum((count * part.time for count, part in routed), start=nothing))
    reduced = layer_messages(transformer, at=at, tokens=tokens)
    sent = expert_messages(transformer, at=at, tokens=tokens, forwarded=forwarded)
    dispatched = sent - hidden_time(
        sent, attention=attention, products=[(1, p) for p in products] + routed, at=at
    )
    launch = launching * over_layers(transformer, lambda block: launch_time(block, at=at)) + over_layers(
        transformer, lambda block: scaling_time(block, at=at)
    )
    in_layers = linear + attention.time + experts + reduced + dispatched + launch
    return Step(
        linear=linear,
        attention=attention.time,
        experts=experts,
        all_reduce=reduced
        + logit_messages(transformer, at=at, tokens=sampled)
        + sequence_messages(transformer, at=at, tokens=tokens),
        all_to_all=dispatched,
        send=stage_messages(transformer, at=at, tokens=tokens),
        launch=launch,
        head=head.time,
        engine=engine,
        bubble=in_layers * waiting_share(transformer, layout=at.layout, in_flight=in_flight),
        compute=sum(part.compute for part in products)
        + sum(count * part.compute for count, part in routed)
        + (attention.compute + head.compute),
        idle=sum(part.time - part.compute for part in products)
        + sum(count * (part.time - part.compute) for count, part in routed),
        memory=sum(part.memory for part in products)
        + sum(count * part.memory for count, part in routed)
        + (attention.memory + head.memory + streamed),
    )


def drafter(transformer: Transformer) -> Transformer:
    """What drafts one token: one layer like the model's last, and its head.

    A multi-token-prediction layer is that with a projection of the last hidden state and the embedding besides, which
    every rank keeps whole (vLLM deepseek_mtp.py, `eh_proj`). A model without one is taken to be drafted for by a head
    of one layer (EAGLE).
    """
    last = transformer.blocks[transformer.sequence[-1]]
    own = transformer.mtp / max(draft_layers(transformer), 1) - last_layer_parameters(transformer)
    block = last.model_copy(update={"other": last.other + max(round(own), 0)})
    same = {name: getattr(transformer, name) for name in Transformer.model_fields}
    return Transformer.model_construct(**same | {"blocks": (block,), "sequence": (0,)})


def draft_time(transformer: Transformer, *, at: Placement, requests: Count, length: Tokens) -> Seconds:
    """Seconds to draft one token for each of `requests`, on the ranks of the last pipeline stage.

    Layers that draft are stored in their own format, the head in the model's; launches and messages are as in the
    model. The engine's own work is part of the step.
    """
    one, weights = drafter(transformer), at.precision.weights
    stored = Precision(
        weights=dict.fromkeys(weights, weights["mtp"]) | {"head": weights["head"]}, kv=at.precision.kv
    )
    there = replace(at, precision=stored, layout=replace(at.layout, pipeline=1), replica=at.layout)
    mixer = one.blocks[0].mixer
    parts = [(1, decode_attention(mixer, at=there, length=length))] if mixer else []
    return step_of(
        one,
        at=there,
        tokens=requests,
        busy=np.asarray(at.layout.data),
        sampled=requests,
        attention=attention_work(parts, sequences=requests),
        launching=1.0,
        forwarded=False,
        engine=0.0,
        in_flight=1.0,
    ).total


def decode_step(
    transformer: Transformer, *, at: Placement, batch: Count, length: Tokens, draft: int = 0
) -> Step:
    """One new token, and `draft` drafted ones verified, for every one of `batch` running requests of one replica.

    Requests are spread evenly over the attention replicas and, with a pipeline, over as many micro-batches as stages;
    a token's step crosses all stages.

    Args:
        batch: running requests, [batches]; at least one.
        length: mean tokens in the cache of a request.
        draft: tokens drafted for every request and step; see `Workload.tokens_per_step` for how many it keeps.
    """
    stages, data = np.asarray(at.layout.pipeline), np.asarray(at.layout.data)
    requests = np.maximum(1.0, np.asarray(batch) / data)
    sequences = np.maximum(1.0, requests / stages)
    cached, queries = np.asarray(length, dtype=float), draft + 1
    parts = [
        (count, decode_attention(block.mixer, at=at, length=cached, queries=queries))
        for count, block in transformer.kinds
        if block.mixer
    ]
    step = step_of(
        transformer,
        at=at,
        tokens=queries * sequences,
        busy=data,
        sampled=queries * sequences,
        attention=attention_work(parts, sequences=sequences),
        launching=1.0,
        forwarded=False,
        engine=at.speed.step + at.speed.request * requests,
        in_flight=np.minimum(requests, stages),
    )
    if not draft:
        return step
    return replace(step, draft=draft * draft_time(transformer, at=at, requests=sequences, length=cached))


def prefill_step(
    transformer: Transformer,
    *,
    at: Placement,
    tokens: Tokens,
    prior: Tokens,
    prompts: Count = 1,
    busy: Count | None = None,
) -> Step:
    """Chunks of `prompts` requests, each of `tokens` new tokens after `prior` cached ones, on every attention replica.

    Context ranks share the tokens, and gather every layer's new keys and values.

    Args:
        tokens: new tokens of one chunk.
        prior: tokens of the same request already in the cache.
        prompts: chunks in the step.
        busy: attention replicas that have chunks, where not all do.
    """
    new, cached = np.asarray(tokens, dtype=float), np.asarray(prior, dtype=float)
    parts = [
        (count, prefill_attention(block.mixer, at=at, tokens=new, prior=cached))
        for count, block in transformer.kinds
        if block.mixer
    ]
    done = step_of(
        transformer,
        at=at,
        tokens=new * prompts / np.asarray(at.layout.context),
        busy=np.asarray(at.layout.data if busy is None else busy),
        sampled=np.asarray(prompts, dtype=float),
        attention=attention_work(parts, sequences=prompts),
        launching=at.speed.eager,
        forwarded=True,
        engine=np.asarray(at.speed.step),
        in_flight=np.asarray(1.0),
    )
    gathered = prompts * context_messages(transformer, at=at, tokens=new)
    return replace(done, send=done.send + gathered)
