"""Figures that show layouts: one colour per family everywhere, and what is not the best is said to be so."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from parplan.choice import AGAINST, candidates, contrasting, passed_over
from parplan.layout import families
from parplan.scenario import Answer, Scenario, plan, problem_of
from parplan.traffic import Traffic
from parplan.ui import charts, load_chart, map_chart
from parplan.ui.overview_tab import PASSED_OVER, nowhere_best, off_the_edge
from parplan.ui.presets import PRESETS
from parplan.ui.theme import DARK, LIGHT, MARKERS, Theme
from parplan.ui.whatif_tab import prompts_around
from parplan.units import GIB, MS
from parplan.whatif import winner_map
from parplan.workload import MOST_AT_ONCE

THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
EXPERTS = Scenario(
    model="deepseek-ai/DeepSeek-V3.1",
    weights="native",
    gpu="h200-sxm",
    concurrency=256,
    prompt=4096,
    budget=16,
)
LIMITED = Scenario(ttft=500, tpot=40)


@pytest.fixture(scope="module")
def experts() -> Answer:
    return plan(EXPERTS)


def named(chart: charts.Chart) -> dict[str, Any]:
    """Name in the legend -> what is drawn; Plotly knows every property."""
    return {mark.name: mark for mark in go.Figure(chart.figure).data if mark.showlegend is not False}


def recommended(answer: Answer) -> int:
    assert answer.advice.recommended is not None
    return answer.advice.recommended.index


# --- colours


@THEMES
@pytest.mark.parametrize("family", MARKERS)
def test_shades_of_a_family_differ_and_the_own_colour_is_among_them(theme: Theme, family: Any) -> None:
    assert theme.shades(family, count=1) == (theme.family[family],)
    for count in range(2, 8):
        for own in range(count):
            shades = theme.shades(family, count=count, own=own)
            assert shades[own] == theme.family[family]
            assert len(set(shades)) == len(shades) == count
        assert theme.family[family] in theme.shades(family, count=count)


@THEMES
def test_curves_have_the_colour_and_marker_of_their_family_and_the_chosen_one_is_thick(
    experts: Answer, theme: Theme
) -> None:
    result, best = experts.result, experts.advice.recommended
    assert best is not None
    indices = contrasting(experts.result, index=best.index)
    drawn = named(
        charts.curves(
            result,
            values=result.serving.tpot / MS,
            unit="ms",
            layouts=indices,
            chosen=best.index,
            limit=0,
            theme=theme,
        )
    )
    looks = set()
    for index in indices:
        layout = result.layout.one(index)
        family = families(layout).item()
        mark = drawn[f"<b>{layout}</b>" if index == best.index else str(layout)]
        assert mark.marker.symbol.removesuffix("-open") == MARKERS[family]
        kin = [other for other in indices if result.families[other] == family]
        if index == best.index or len(kin) == 1:
            assert mark.line.color == theme.family[family]
        assert (mark.line.width > 2) == (index == best.index)
        looks.add(mark.line.color)
    assert len(looks) == len(indices)


@THEMES
def test_the_map_fades_and_marks_what_does_not_do_the_job(theme: Theme) -> None:
    found = winner_map(problem_of(LIMITED), prompts=(1024, 65536))
    chart = map_chart.prompts_against_requests(found, asked=(64, 1024), theme=theme)
    drawn = named(chart)
    field = go.Figure(chart.figure).data[0]
    shown = [[field.colorscale[2 * z][1] for z in row] for row in field.z]
    own = found.cells[0][found.concurrency.tolist().index(64)]
    assert own.layout is not None
    assert drawn[f"<b>{own.name}</b>"].marker.color == theme.family["TP"]
    cells = {(x, y): cell for y, row in enumerate(found.cells) for x, cell in enumerate(row[: len(shown[0])])}
    failing = {
        map_chart.LATE.words: {place for place, cell in cells.items() if cell.misses and not cell.waits},
        map_chart.WAITS.words: {place for place, cell in cells.items() if cell.waits},
    }
    for words, places in failing.items():
        assert places
        assert {*zip(drawn[words].x, drawn[words].y, strict=True)} == places
        assert f"{words}: {len(places)} of {2 * len(shown[0])} cells" in chart.alt
    whole = {mark.marker.color for mark in drawn.values() if mark.type == "scatter"}
    marked = set.union(*failing.values())
    for (x, y), cell in cells.items():
        assert (shown[y][x] in whole) == ((x, y) not in marked)
        assert cell.words in field.text[y][x]
        assert field.customdata[y][x] == f"{found.concurrency[x]} {found.prompts[y]}"


@THEMES
def test_no_shade_of_a_family_is_like_that_of_the_other_layouts(theme: Theme) -> None:
    """Apart in CIELAB by several times what the eye tells apart side by side (2.3), faded or not."""
    others = theme.others, theme.faded(theme.others)
    for family in MARKERS:
        shades = {shade for count in range(1, 8) for shade in theme.shades(family, count=count)}
        for shade in shades | {theme.faded(one) for one in shades} | {theme.background}:
            assert min(np.linalg.norm(lab(shade) - lab(other)) for other in others) > 9, (family, shade)


def lab(colour: str) -> Any:
    """Lightness, green to red, blue to yellow: CIE 15:2004, of a colour of IEC 61966-2-1 under D65."""
    coded = np.array([*bytes.fromhex(colour.removeprefix("#"))]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    primaries = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(primaries @ linear / np.array([0.9505, 1.0, 1.0890]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


# --- bars


def bars(answer: Answer, **looks: Any) -> Any:
    result = answer.result
    plans = [result.plan(index) for index in candidates(result)]
    return go.Figure(charts.memory_bars(plans, chosen=None, theme=LIGHT, **looks).figure), plans


def test_a_bar_too_long_to_draw_is_broken_off_and_says_how_long_it_is() -> None:
    """405B in BF16 needs some ten H100; four have a bar of more than twice their memory each."""
    figure, plans = bars(plan(Scenario(model="meta-llama/Meta-Llama-3.1-405B", weights="bf16", budget=4)))
    end = figure.layout.xaxis.range[1]
    lengths = np.sum([mark.x for mark in figure.data], axis=0)
    broken = {note.y: note.text for note in figure.layout.annotations if charts.BREAK in note.text}
    assert broken.keys() == {place for place, length in enumerate(lengths) if length > end} != set()
    for place, text in broken.items():
        assert f"{plans[place].memory.needed / GIB:,.0f} GiB" in text
    figure, _ = bars(plan(Scenario()))
    assert not any(charts.BREAK in note.text for note in figure.layout.annotations)


def test_a_bar_stands_for_its_layout_and_the_ticked_one_is_bold() -> None:
    answer = plan(Scenario())
    own = answer.result.layout.one(candidates(answer.result)[-1])
    figure, plans = bars(answer, ticked=own)
    for mark in figure.data:
        assert list(mark.customdata) == [str(one.layout) for one in plans]
        assert [name.startswith("<b>✓ ") for name in mark.y] == [one.layout == own for one in plans]


# --- what is ticked


def test_a_ticked_layout_is_framed_on_the_frontier_and_thick_in_curves(experts: Answer) -> None:
    result, best = experts.result, experts.advice.recommended
    assert best is not None
    drawn_anyway = contrasting(result, index=best.index)
    own = next(int(i) for i in np.flatnonzero(result.legal)[::-1] if i not in drawn_anyway)
    frame = named(charts.frontier(result, chosen=best.index, ticked=own, theme=LIGHT))["Ticked"]
    layout = str(result.layout.one(own))
    assert frame.x[0] == result.at_asked(result.serving.tokens_per_s_per_user)[own]
    assert frame.customdata[0] == layout
    indices = contrasting(result, index=best.index, own=own)
    assert {own, best.index} <= set(indices)
    assert len(indices) <= 7
    times: dict[str, Any] = {"values": result.serving.tpot / MS, "unit": "ms", "layouts": indices, "limit": 0}
    drawn = named(charts.curves(result, **times, chosen=best.index, ticked=own, theme=LIGHT))
    thick = {name for name, mark in drawn.items() if mark.line.width and mark.line.width > 2}
    assert thick == {f"<b>{best.layout}</b>", f"<b>{layout}</b>, ticked"}
    assert drawn[f"<b>{layout}</b>, ticked"].meta == layout


@pytest.mark.parametrize("index", [None, "recommended", "illegal"])
def test_nothing_is_framed_without_a_tick_or_where_it_says_nothing_new(experts: Answer, index: Any) -> None:
    best = recommended(experts)
    own = {"recommended": best, "illegal": int(np.flatnonzero(~experts.result.legal)[0])}.get(index)
    assert "Ticked" not in named(charts.frontier(experts.result, chosen=best, ticked=own, theme=LIGHT))
    shown = contrasting(experts.result, index=best, own=own)
    assert shown == contrasting(experts.result, index=best)


# --- targets


@THEMES
def test_points_whose_first_token_is_late_are_hollow(theme: Theme) -> None:
    answer = plan(EXPERTS.model_copy(update={"ttft": 2000}))
    result = answer.result
    drawn = named(charts.frontier(result, chosen=recommended(answer), theme=theme))
    ttft, late = result.grid(result.serving.ttft), 0
    for name in MARKERS:
        symbols = drawn[name].marker.symbol
        places = list(zip(*result.frontiers[name], strict=True))
        symbols = [symbols] * len(places) if isinstance(symbols, str) else symbols
        for symbol, place in zip(symbols, places, strict=True):
            assert symbol.endswith("-open") == (ttft[place] > 2.0)
            late += ttft[place] > 2.0
    assert late > 0
    assert charts.LATE in drawn


@pytest.mark.parametrize(("tpot", "side"), [(60, "left"), (10, "right")])
def test_the_target_for_the_time_per_token_is_named_on_the_side_with_room(tpot: int, side: str) -> None:
    answer = plan(EXPERTS.model_copy(update={"tpot": tpot}))
    figure = go.Figure(charts.frontier(answer.result, chosen=recommended(answer), theme=LIGHT).figure)
    (note,) = figure.layout.annotations
    assert f"{tpot} ms per token" in note.text
    assert note.x == figure.layout.shapes[0].x0 == 1000 / tpot
    assert note.xanchor == side


def test_without_a_target_for_the_first_token_nothing_is_hollow(experts: Answer) -> None:
    drawn = named(charts.frontier(experts.result, chosen=recommended(experts), theme=LIGHT))
    assert charts.LATE not in drawn
    assert {drawn[name].marker.symbol for name in MARKERS} == set(MARKERS.values())


def test_a_cross_stands_where_the_first_token_begins_to_be_late_and_the_target_is_named() -> None:
    answer = plan(EXPERTS.model_copy(update={"ttft": 2000, "tpot": 60}))
    result, best = answer.result, answer.advice.recommended
    assert best is not None
    indices = contrasting(answer.result, index=best.index)
    chart = charts.curves(
        result,
        values=result.serving.tpot / MS,
        unit="ms",
        layouts=indices,
        chosen=best.index,
        limit=60,
        theme=LIGHT,
    )
    crosses = named(chart)[f"{charts.LATE} from here"]
    ttft, tpot = result.grid(result.serving.ttft), result.grid(result.serving.tpot)
    marked = dict(zip(crosses.customdata, crosses.y, strict=True))
    for index in indices:
        shown = result.concurrency <= MOST_AT_ONCE
        late = np.flatnonzero(shown & (ttft[index] > 2.0))
        name = str(result.layout.one(index))
        assert (name in marked) == bool(late.size)
        if late.size:
            assert marked[name] == pytest.approx(tpot[index, late[0]] / MS)
    notes = {note.text: note.y for note in go.Figure(chart.figure).layout.annotations}
    assert notes["target: 60 ms"] == 60


# --- the frontier


@THEMES
def test_families_that_are_nowhere_best_wait_for_a_click_and_beaten_points_are_faint(
    experts: Answer, theme: Theme
) -> None:
    result = experts.result
    drawn = named(charts.frontier(result, chosen=recommended(experts), theme=theme))
    best = {*zip(*(places.tolist() for places in result.frontier), strict=True)}
    hidden = [name for name in MARKERS if drawn[name].visible == "legendonly"]
    assert nowhere_best(result) == f"Nowhere best, shown by a click on the name: {', '.join(hidden)}."
    assert hidden
    for name in MARKERS:
        bold = np.array(drawn[name].marker.opacity) == 1
        places = zip(*(places.tolist() for places in result.frontiers[name]), strict=True)
        assert bold.tolist() == [place in best for place in places]
        assert bold.any() == (name not in hidden)


def test_a_bar_marks_where_the_recommended_layout_is_full() -> None:
    """70B on two H100: the cache holds 112 requests; with room for any number there is no bar."""
    answer = plan(Scenario())
    index = recommended(answer)
    bar = named(charts.frontier(answer.result, chosen=index, theme=LIGHT))["Its KV cache full"]
    capacity = answer.result.plan(index).memory.capacity
    assert bar.text[0] == f"{answer.result.layout.one(index)}, {int(capacity)} requests"
    fastest = answer.result.grid(answer.result.serving.tokens_per_s_per_gpu)[index].max()
    assert bar.y[0] == pytest.approx(fastest)


def test_where_slots_are_fewer_than_the_cache_holds_they_are_what_is_full(experts: Answer) -> None:
    best = experts.advice.recommended
    assert best is not None
    full = experts.result.filled(best.index)
    assert full is not None
    assert experts.result.grid(experts.result.serving.running)[best.index, full] < best.memory.capacity
    assert "Its slots full" in named(charts.frontier(experts.result, chosen=best.index, theme=LIGHT))


def test_what_beats_the_recommended_layout_is_said_to_be_unwise() -> None:
    """Stages inside one node: faster on paper for each user and per GPU, and warned of."""
    answer = plan(Scenario(concurrency=1024, prompt=128, output=128))
    result, best = answer.result, answer.advice.recommended
    assert best is not None
    found = passed_over(result, index=best.index)
    user, gpu = (
        result.at_asked(rate)
        for rate in (result.serving.tokens_per_s_per_user, result.serving.tokens_per_s_per_gpu)
    )
    more = result.holds & (user > user[best.index]) & (gpu > gpu[best.index])
    assert sum(layouts.size for layouts in found.values()) == more.sum() > 0
    assert not result.wise[found["unwise"]].any()
    assert (np.diff(gpu[found["unwise"]]) <= 0).all()
    assert f"{found['unwise'].size} have a warning on their cards (such as " in off_the_edge(result, best)
    assert PASSED_OVER.keys() == set(AGAINST)


def test_nothing_is_said_where_the_recommended_layout_is_among_the_best() -> None:
    answer = plan(Scenario())
    assert answer.advice.recommended is not None
    assert off_the_edge(answer.result, answer.advice.recommended) == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"concurrency": 4096, "prompt": 131072}, "cannot hold 4,096 requests"),
        ({"model": "Qwen/Qwen3-8B", "concurrency": 64, "objective": "latency"}, "Recommended is not among"),
    ],
)
def test_a_recommended_layout_off_the_lines_says_why(changes: dict[str, Any], words: str) -> None:
    answer = plan(Scenario(**changes))
    assert answer.advice.recommended is not None
    assert words in off_the_edge(answer.result, answer.advice.recommended)


# --- a very long prompt, alone


@pytest.fixture(scope="module")
def alone() -> Answer:
    """One request of a million tokens at once."""
    return plan(PRESETS["Million-token prompt"])


def load_of(answer: Answer) -> charts.Chart:
    assert isinstance(answer.traffic, Traffic)
    return load_chart.first_token_against_rate(answer.traffic, theme=LIGHT)


def map_of(answer: Answer) -> charts.Chart:
    workload = answer.result.problem.workload
    found = winner_map(answer.result.problem, prompts=prompts_around(workload.prompt))
    return map_chart.prompts_against_requests(
        found, asked=(workload.concurrency, workload.prompt), theme=LIGHT
    )


@pytest.mark.parametrize("picture", [load_of, map_of])
def test_the_title_of_an_axis_stands_beside_its_longest_label(
    alone: Answer, picture: Callable[[Answer], charts.Chart]
) -> None:
    layout = picture(alone).figure["layout"]
    longest = max(layout["yaxis"]["ticktext"], key=len)
    title = 1.2 * layout["yaxis"]["title"]["font"]["size"] + layout["yaxis"]["title"]["standoff"]
    assert len(longest) >= len("1,000,000")
    assert layout["margin"]["l"] >= title + 6.5 * len(longest)  # a digit is 0.54 of the size of its font


def test_labels_are_those_of_times_that_are_drawn(alone: Answer) -> None:
    axis = load_of(alone).figure["layout"]["yaxis"]
    assert axis["tickvals"]
    assert all(axis["range"][0] <= np.log10(tick) <= axis["range"][1] for tick in axis["tickvals"])


def test_a_rate_below_a_hundredth_is_not_called_zero(alone: Answer) -> None:
    chart = load_of(alone)
    assert "0.00 " not in chart.alt
    for line in chart.figure["data"]:
        assert [float(text) for text in line["text"]] == pytest.approx(line["x"], rel=0.005)


def test_one_of_a_kind_is_not_in_the_plural(alone: Answer) -> None:
    best = recommended(alone)
    drawn = alone.result.plan(best)
    told = (
        charts.memory_bars([drawn], chosen=None, theme=LIGHT).alt,
        charts.scenario_bars({"one": drawn}, theme=LIGHT).alt,
        charts.curves(
            alone.result,
            values=alone.result.serving.tpot / MS,
            unit="ms",
            layouts=[best],
            chosen=best,
            limit=0,
            theme=LIGHT,
        ).alt,
        map_of(alone).alt,
    )
    for words in told:
        assert not re.search(r"\b1 (layouts|scenarios|requests)", words)
