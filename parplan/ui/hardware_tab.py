"""The same workload on every GPU of the catalogue: how fast, for how much."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.across import Elsewhere, plans_across
from parplan.advice import verdict
from parplan.cost import COME, Bill, bill, bought_for, energy_per_token, replicas_held
from parplan.explanation import gpu_count, time_per_token, time_to_first_token, tokens_per_second_per_gpu
from parplan.hardware import Instance
from parplan.instances import purchases
from parplan.layout import CUT_NAMES
from parplan.networks import Offer, Speeds, quick_enough
from parplan.planner import Plan
from parplan.products import Explanation
from parplan.purchase_explanation import machines_needed, replicas_on, token_energy
from parplan.report import in_one_line
from parplan.scenario import TRIED_GPUS, Answer, Scenario, asked_rate, list_terms, price_terms
from parplan.ui import explain, inputs, prices
from parplan.ui.figures import draw, room_for_tools, theme
from parplan.ui.hardware_chart import Spot, cost_against_speed
from parplan.ui.prices import costs, machines, price_day, worth
from parplan.ui.words import plain
from parplan.units import MS, counted

FILLED, ALONE = "run more replicas", "stand idle"
"""What the GPUs of a machine do that one deployment does not need."""
BRAND = re.compile(r"\b(Instinct|GeForce|Blackwell) ")
SIZE = re.compile(r" \d+ GB$")
"""What nobody says of a GPU, and its memory."""
COLUMNS = {
    "GPU": st.column_config.TextColumn(pinned=True, width=105),
    "Layout": st.column_config.TextColumn(width=110),
    "USD/M output": prices.COLUMNS["USD/M output"],
    "GPUs": st.column_config.NumberColumn(format="%d", width=55, help="Of one replica"),
    "USD/hour": prices.COLUMNS["USD/hour"],
    "Status": st.column_config.TextColumn(width=95),
    "ms/token": st.column_config.NumberColumn(format="%.1f", width=80, help="Time per output token"),
    "First token, ms": st.column_config.NumberColumn(format="%,.0f", width=105),
    "Price of": prices.COLUMNS["Price of"],
    "Machines": st.column_config.TextColumn(
        width=190, help="The cheapest per token of the providers asked for"
    ),
    "Tokens/s per GPU": st.column_config.NumberColumn(format="%,.0f"),
    "± token": st.column_config.NumberColumn(
        format="percent", help="How far the time per token may be off, from measurements of its kind"
    ),
    "± first": st.column_config.NumberColumn(
        format="percent", help="How far the time to first token may be off"
    ),
    **{name: prices.COLUMNS[name] for name in ("USD/M input", "USD/M total", "USD/request")},
    "Replicas on them": st.column_config.NumberColumn(format="%d", help="On the machines of the row"),
    "J per token": st.column_config.NumberColumn(
        format="%.2f",
        help="GPUs at their TDP, the rest of the machine left out: at most this, for output tokens",
    ),
    "In words": st.column_config.TextColumn(width="large"),
}


@dataclass(frozen=True)
class Option:
    """One GPU, its best layout, and the cheapest machines for it."""

    found: Elsewhere
    bill: Bill | None
    """None: nobody of the providers asked for names a price."""
    plan: Plan | None
    """The layout as it runs on the machines of the bill, over their own network."""

    @property
    def words(self) -> str:
        """The answer in one sentence, at that speed."""
        plan = self.plan
        return self.found.words if plan is None or plan is self.found.plan else verdict(plan.result, plan)


def show(answer: Answer) -> None:
    """Filters, the picture, and the table."""
    vendors, providers, spare = _filters(answer)
    offers = tuple(offer for offer in answer.offers if offer.provider in providers)
    options = [
        of(found, offers, answer.scenario, filled=spare == FILLED)
        for found in plans_across(answer.scenario).values()
        if found.gpu.vendor in vendors
    ]
    options.sort(key=_order)
    drawn = _picture(options, answer)
    _notes(options, answer.scenario, drawn=drawn)
    _table(options, answer, filled=spare == FILLED)


def _filters(answer: Answer) -> tuple[Sequence[str], Sequence[str], str]:
    """Vendors, providers, and what spare GPUs do; nothing picked means all."""
    vendors = sorted({gpu.vendor for gpu in catalog.gpus().values()})
    providers = sorted({offer.provider for offer in answer.offers})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        made = st.pills(
            "Vendor", vendors, selection_mode="multi", default=vendors, key="_vendors", width="content"
        )
        spare = ALONE if answer.scenario.rate else _spare()
        rented = st.multiselect("Providers", providers, key="_providers", placeholder="All", width=360)
    return made or vendors, rented or providers, spare or FILLED


def _spare() -> str | None:
    """What the GPUs of a machine do that are not needed."""
    return st.segmented_control(
        "Spare GPUs of a machine",
        [FILLED, ALONE],
        default=FILLED,
        required=True,
        key="_spare",
        width="content",
        help="Machines are rented whole. Their spare GPUs can run more replicas, all of them always busy; or only "
        "the replicas you asked for run.",
    )


def of(found: Elsewhere, offers: Sequence[Instance], scenario: Scenario, *, filled: bool) -> Option:
    """The cheapest machines per request, with the replicas they run; where the targets are met, of those whose network
    is fast enough."""
    plan = found.plan
    if plan is None:
        return Option(found, None, None)
    every = Speeds().offers(plan, purchases(offers, gpu=found.gpu, gpus=plan.gpus))
    paid = [
        (bill, offer.plan)
        for offer in (quick_enough(every) if plan.in_time else every)
        if (bill := _bill(offer, found, scenario, filled=filled))
    ]
    best = min(paid, key=lambda one: float(one[0].cost.per_request), default=None)
    return Option(found, *best) if best else Option(found, None, plan)


def _bill(offer: Offer, found: Elsewhere, scenario: Scenario, *, filled: bool) -> Bill | None:
    """What the machines of an offer cost when they are filled with replicas, or enough of them for those asked for, or
    for those that a rate takes."""
    plan, one = offer.plan, offer.purchase
    replicas = replicas_held(one, gpus=plan.gpus) if filled and not found.bears else found.replicas
    paid = one if filled and not found.bears else bought_for(one.instance, replicas=replicas, gpus=plan.gpus)
    answered = scenario.work(replicas * float(plan.serving.requests_per_s))
    work = scenario.work(scenario.rate, named=COME) if found.bears else answered
    return bill(paid, replicas=replicas, work=work)


def _order(option: Option) -> tuple[bool, bool, float, str]:
    """What does the job first, then what has a price, then the cheapest."""
    plan, bill = option.plan, option.bill
    does = plan is not None and plan.does_job
    return not does, bill is None, float(bill.cost.per_request) if bill else 0.0, option.found.gpu.label


def status(plan: Plan | None) -> str:
    """How far a plan does the job, in a word or two."""
    if plan is None:
        return "does not run"
    return "requests wait" if not plan.holds else "good" if plan.in_time else "too slow"


def _picture(options: Sequence[Option], answer: Answer) -> bool:
    """Whether there was anything to draw."""
    runs = [option for option in options if option.plan and option.plan.holds and option.bill]
    spots = [
        Spot(
            gpu=option.found.gpu.label,
            name=short_name(option.found.gpu.label),
            vendor=option.found.gpu.vendor,
            words=f"{counted(plan.gpus, 'GPU')}, {plan.layout}<br>{machines(option.bill.purchase)}",
            speed=float(plan.serving.tokens_per_s_per_user),
            usd=float(option.bill.cost.per_million_output),
        )
        for option in runs
        if (plan := option.plan) and option.bill and option.bill.cost.per_million_output
    ]
    if free := len(runs) - len(spots):
        st.text(f"Not drawn: {counted(free, 'GPU type')} at no cost; a logarithmic scale has no place for 0.")
    if not spots:
        if not runs:
            st.text("No GPU with a known price holds every request.")
        return False
    chosen = answer.result.problem.gpu.label
    draw(
        cost_against_speed(spots, chosen=chosen, theme=theme()),
        key="hardware",
        about=in_one_line(answer.result.problem),
    )
    return True


def short_name(label: str) -> str:
    """What people call a GPU: without its brand, and without its memory where there is no other of the name.

    >>> short_name("Instinct MI300X 192 GB"), short_name("A100 SXM 80 GB"), short_name("My GPU")
    ('MI300X', 'A100 SXM 80 GB', 'My GPU')
    """
    alike = [gpu for gpu in catalog.gpus().values() if SIZE.sub("", gpu.label) == SIZE.sub("", label)]
    return BRAND.sub("", label if len(alike) > 1 else SIZE.sub("", label))


def _notes(options: Sequence[Option], scenario: Scenario, *, drawn: bool) -> None:
    """What the prices are worth, and what was not tried."""
    days = [option.bill.purchase.instance.priced for option in options if option.bill]
    fixed = ", ".join(f"{name} {size}" for name in CUT_NAMES if (size := getattr(scenario, name)))
    terms, others = price_terms(scenario), list_terms(scenario)
    notes = (
        terms if terms == others else f"{terms} Other GPUs: {others}",
        "One point per GPU, with its best layout; named where there is room, first where no other is both "
        "cheaper and faster. Point at one for its layout and machines."
        if drawn
        else "",
        f"Each with the replicas that {rate} take at their peak, paid for the mean rate."
        if (rate := asked_rate(scenario))
        else "",
        prices.SPREAD if days else "",
        worth(days, today=date.today()),
        f"Fixed everywhere: {fixed}." if fixed else "",
        f"At most {TRIED_GPUS} GPUs per replica are tried here." if scenario.budget > TRIED_GPUS else "",
    )
    st.caption(plain(" ".join(filter(None, notes))))


def _table(options: Sequence[Option], answer: Answer, *, filled: bool) -> None:
    room_for_tools()
    ticked = st.dataframe(
        table(options),
        key="hardware_table",
        hide_index=True,
        height=420,
        placeholder="",
        on_select="rerun",
        selection_mode="single-row",
        column_config=COLUMNS,
        alt="The best layout on every GPU, with its speed and cost",
    )
    rows = [row for row in ticked.selection.rows if row < len(options)]
    if rows:
        option = options[rows[0]]
        gpu = option.found.gpu
        there = answer.scenario.on(gpu.name)
        with st.container(horizontal=True):
            st.button(
                f"Plan on {gpu.label}", on_click=inputs.take, args=(there,), icon=":material/arrow_forward:"
            )
            if option.plan:
                explain.button(
                    lambda: {"": explained(option, scenario=there, filled=filled)},
                    key="_explain_row",
                    label="Explain this row",
                )
    else:
        st.caption(
            "Tick a row (keyboard: Shift and space bar) to see how its figures are made, or to plan on that GPU."
        )


def explained(option: Option, *, scenario: Scenario, filled: bool) -> explain.Figures:
    """How the figures of a row are made.

    Args:
        option: the row.
        scenario: on its GPU.
        filled: spare GPUs of the machines run more replicas.
    """
    found, paid = option.plan, option.bill
    if found is None:
        return {}
    problem = found.result.problem
    costs_of = _costs_explained(paid, found, option.found, scenario, filled=filled) if paid else {}
    speeds: dict[str, Callable[[], Explanation]] = {
        "ms/token": partial(time_per_token, problem, found),
        "First token, ms": partial(time_to_first_token, problem, found),
        "Tokens/s per GPU": partial(tokens_per_second_per_gpu, problem, found),
        "GPUs": partial(gpu_count, found, replicas=1),
    }
    if (tdp := problem.gpu.tdp) is not None:
        rate = float(found.serving.tokens_per_s_per_gpu)
        speeds["J per token"] = partial(token_energy, problem.gpu, tdp=tdp, gpus=1, rate=rate)
    return {**costs_of, **{name: explain.Figure(made) for name, made in speeds.items()}}


def _costs_explained(
    paid: Bill, found: Plan, elsewhere: Elsewhere, scenario: Scenario, *, filled: bool
) -> explain.Figures:
    """The costs of a row, dearest question first."""
    filled = filled and not elsewhere.bears
    replicas = 1 if filled else paid.replicas
    needed = machines_needed(paid.purchase, replicas=replicas, gpus=found.gpus)
    figures = prices.explained(paid, needed=needed, scenario=scenario)
    first = {"USD/M output": figures["USD/M output"]}
    on_them = {"Replicas on them": explain.Figure(partial(replicas_on, paid, gpus=found.gpus))}
    return first | dict(figures) | (on_them if filled else {})


def table(options: Sequence[Option]) -> pd.DataFrame:
    """One row per GPU, in the order given."""
    return pd.DataFrame([_row(option) for option in options], columns=list(COLUMNS))


def _row(option: Option) -> Mapping[str, object]:
    found, plan = option.found, option.plan
    words = {"GPU": short_name(found.gpu.label), "Status": status(plan), "In words": option.words}
    return (
        words
        | (_figures(plan) if plan else {})
        | _bands(found)
        | _energy(option)
        | (_costs(option.bill) if option.bill else {})
    )


def _figures(plan: Plan) -> dict[str, object]:
    serving = plan.serving
    return {
        "GPUs": plan.gpus,
        "Layout": str(plan.layout),
        "ms/token": None if plan.result.problem.workload.one_token else float(serving.tpot) / MS,
        "First token, ms": float(serving.ttft) / MS,
        "Tokens/s per GPU": float(serving.tokens_per_s_per_gpu),
    }


def _bands(found: Elsewhere) -> dict[str, object]:
    known = found.confidence
    return (
        {"± token": round(known.tpot.relative, 2), "± first": round(known.ttft.relative, 2)} if known else {}
    )


def _energy(option: Option) -> dict[str, object]:
    if option.plan is None or option.found.gpu.tdp is None:
        return {}
    per_gpu = float(option.plan.serving.tokens_per_s_per_gpu)
    return {"J per token": float(energy_per_token(option.found.gpu.tdp, rate=per_gpu))}


def _costs(paid: Bill) -> dict[str, object]:
    return costs(paid.cost) | {
        "Machines": machines(paid.purchase),
        "Replicas on them": paid.replicas,
        "Price of": price_day(paid.purchase.instance.priced, today=date.today()),
    }
