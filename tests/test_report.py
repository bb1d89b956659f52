"""The one-page report: it says what the answer says, and is one page of valid Markdown whatever it is about."""

from datetime import date
from typing import Any

import pytest

from parplan import Scenario, plan
from parplan.report import in_one_line, report
from parplan.units import written_bytes, written_time
from parplan.workload import OBJECTIVES

DAY = date(2026, 11, 29)
LINK = "https://example.org/?v=1&gpu=h100-sxm"
STAGES_AHEAD = {"model": "deepseek-ai/DeepSeek-V3.1", "weights": "native", "gpu": "h200-sxm", "concurrency": 256,
                "prompt": 4096, "budget": 16}  # fmt: skip
"""By the formulas stages inside one node are ahead of what is recommended."""
EVERYTHING = ("Asked", "Answer", "Why", "Memory of the fullest GPU", "Next best", "With more GPUs",
              "Layouts that do it, best first", "What to buy for the requests of one replica", "On a napkin", "Assumed",
              "Sources")  # fmt: skip


def sections(text: str) -> dict[str, str]:
    _, *parts = text.split("\n## ")
    return {title: body.strip() for title, _, body in (part.partition("\n") for part in parts)}


def rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_it_holds_the_verdict_the_link_the_day_and_every_section() -> None:
    answer = plan(Scenario())
    text = report(answer, link=LINK, written=DAY)
    assert text.startswith(f"# {answer.advice.verdict}\n")
    assert f"<{LINK}>" in text
    assert "2026-11-29" in text
    assert tuple(sections(text)) == EVERYTHING


def test_the_report_cites_what_the_plan_rests_on() -> None:
    llama, oss = (
        sections(report(plan(Scenario(model=model)), link=LINK, written=DAY))["Sources"].casefold()
        for model in ("meta-llama/Llama-3.3-70B-Instruct", "openai/gpt-oss-20b")
    )
    for word in ("mxfp4", "indexer", "deepseek"):
        assert word not in llama
    assert "mxfp4" in oss
    assert "deepseek" not in oss


def test_the_head_counts_all_replicas() -> None:
    text = report(plan(Scenario(replicas=4, concurrency=80)), link=LINK, written=DAY)
    assert "8 × H100 SXM 80 GB (4 × TP2) serve 320 requests at once" in text.partition("\n")[0]


def test_a_model_has_the_name_it_was_chosen_by() -> None:
    chosen = "meta-llama/Llama-3.1-8B-Instruct"
    answer = plan(Scenario(model=chosen))
    assert answer.advice.verdict.startswith("Llama-3.1-8B-Instruct in FP8: ")
    assert ["Model", chosen] in rows(sections(report(answer, link=LINK, written=DAY))["Asked"])


def test_its_figures_are_those_of_the_answer() -> None:
    answer = plan(Scenario(replicas=3, tpot=40))
    best = answer.advice.recommended
    assert best is not None
    found = sections(report(answer, link=LINK, written=DAY))
    figures = dict(rows(found["Answer"])[2:])
    assert figures["Layout"] == str(best.layout)
    assert figures["GPUs"] == f"{3 * best.gpus}, {best.gpus} per replica"
    assert figures["Time per output token, mean"].startswith(f"{written_time(float(best.serving.tpot))} ±")
    memory = {row[0]: row[1:] for row in rows(found["Memory of the fullest GPU"])[2:] if len(row) == 3}
    assert memory["Weights"] == [written_bytes(float(best.memory.weights))] * 2
    assert memory["Together"] == [
        written_bytes(float(best.memory.needed)),
        written_bytes(float(best.memory.reserved)),
    ]
    for column in (0, 1):
        parts = [float(sizes[column].split()[0]) for sizes in memory.values()]
        assert sum(parts[:-1]) == pytest.approx(parts[-1], abs=0.3)
    assert ["Targets", "each token within 40 ms"] in rows(found["Asked"])


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("asked", [{}, STAGES_AHEAD, {"budget": 1}, {"tpot": 1}], ids=str)
def test_the_recommended_layout_is_listed_first(asked: dict[str, Any], objective: str) -> None:
    answer = plan(Scenario(**asked, objective=objective))
    table = rows(sections(report(answer, link=LINK, written=DAY))["Layouts that do it, best first"])
    assert answer.advice.recommended is not None
    assert 1 <= len(table[2:]) <= 5
    assert table[2][0] == str(answer.advice.recommended.layout)


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(gpu="t4", budget=1),  # nothing runs
        Scenario(budget=1),  # requests wait
        Scenario(tpot=1),  # too slow
        Scenario(model="size", size=400, active=17, tensor=8),
        Scenario(model="deepseek-ai/DeepSeek-V3.1", weights="native", gpu="b200-sxm"),
    ],
    ids=lambda scenario: "&".join(f"{key}={value}" for key, value in scenario.changed().items()),
)
def test_it_can_be_written_of_any_answer_and_its_tables_are_rectangular(scenario: Scenario) -> None:
    text = report(plan(scenario), link=LINK, written=DAY)
    assert {"Asked", "What to buy for the requests of one replica", "Assumed", "Sources"} <= set(
        sections(text)
    )
    for body in sections(text).values():
        widths = {line.replace("\\|", "").count("|") for line in body.splitlines() if line.startswith("|")}
        assert len(widths) <= 1


def test_every_source_has_its_day() -> None:
    lines = sections(report(plan(Scenario()), link=LINK, written=DAY))["Sources"].splitlines()
    assert len(lines) > 5
    assert all("read 20" in line for line in lines)


def test_a_rate_has_a_section_of_its_own() -> None:
    answer = plan(Scenario(rate=10, peak=2))
    found = sections(report(answer, link=LINK, written=DAY))
    assert answer.traffic is not None
    load = found["Requests as they come"]
    assert answer.load_words in load
    assert f"{answer.traffic.replicas} replicas" in load
    assert ["Requests per second", "10 on average, 20 at the peak"] in rows(found["Asked"])
    (cheapest, *_) = answer.bills(10)
    assert f"{cheapest.cost.per_hour:,.2f}" in rows(load[load.index("| Machines") :])[2]
    impossible = sections(report(plan(Scenario(rate=10, tpot=1)), link=LINK, written=DAY))
    assert "no number of replicas helps" in impossible["Requests as they come"]


def test_with_a_rate_its_figures_are_those_of_the_verdict_and_the_others_say_what_they_are_of() -> None:
    answer = plan(Scenario(rate=5, peak=3, ttft=1000, tpot=40))
    found = sections(report(answer, link=LINK, written=DAY))
    figures, borne = dict(rows(found["Answer"])[2:]), answer.borne
    assert borne is not None
    for name in ("Time per output token, mean", "95 of 100 first tokens within"):
        assert figures[f"{name}, at the busiest time"] in answer.verdict
    tokens = figures["Tokens/s, all replicas, at the busiest time"]
    assert tokens == f"{5 * 3 * answer.scenario.output:,}"
    at_once = [name for name in figures if "time" in name.lower() or "Tokens/s" in name]
    assert all(
        "busiest time" in name or "with 64 requests at once in each replica" in name for name in at_once
    )
    assert ["Replicas", "as many as bear the rate"] in rows(found["Asked"])
    assert any("best first, with 64 requests at once" in title for title in found)


SELDOM: dict[str, Any] = {"draft": 2, "acceptance": 61.5, "utilization": 85.0, "slots": 96, "step_tokens": 4096,
          "images": False, "memory_scale": 1.25, "compute_scale": 0.75, "overhead_scale": 1.5, "activations": 2.5,
          "non_torch": 1.5, "graphs": 0.5, "redundant": 32}  # fmt: skip
OFTEN: dict[str, Any] = {"model": "Qwen/Qwen3-8B", "weights": "bf16", "kv": "fp8", "gpu": "h200-sxm",
         "engine": "sglang", "concurrency": 63, "prompt": 1023, "output": 1022, "ttft": 1234.0, "tpot": 67.0,
         "objective": "latency", "prefix": 37.0, "budget": 7, "replicas": 5, "rate": 3.25, "discount": 12.5,
         "gpu_hour": 2.75, "tensor": 2}  # fmt: skip


@pytest.mark.parametrize("name", SELDOM)
def test_a_seldom_setting_is_listed_where_it_is_not_as_it_comes(name: str) -> None:
    asked = rows(sections(report(plan(Scenario(**{name: SELDOM[name]})), link=LINK, written=DAY))["Asked"])
    assert [name.replace("_", "\\_"), str(SELDOM[name])] in asked
    assert len(asked) == len(rows(sections(report(plan(Scenario()), link=LINK, written=DAY))["Asked"])) + 1


@pytest.mark.parametrize("name", OFTEN)
def test_every_other_setting_can_be_read_in_the_report(name: str) -> None:
    """Whatever is changed, what is asked or assumed reads differently."""
    found, plain = (
        sections(report(plan(scenario), link=LINK, written=DAY))
        for scenario in (Scenario(**{name: OFTEN[name]}), Scenario())
    )
    assert (found["Asked"], found["Assumed"]) != (plain["Asked"], plain["Assumed"])


def test_prices_have_their_days() -> None:
    answer = plan(Scenario())
    days = {
        rung.purchases[0].instance.priced.isoformat()
        for rung in answer.advice.ladder
        if rung.purchases and rung.purchases[0].instance.priced
    }
    assumed = sections(report(answer, link=LINK, written=DAY))["Assumed"]
    assert min(days) in assumed
    assert max(days) in assumed


def test_a_figure_without_its_page_still_says_what_it_is_about() -> None:
    line = in_one_line(plan(Scenario(concurrency=37)).result.problem)
    for part in ("Llama-3.3-70B-Instruct", "FP8", "H100 SXM", "vLLM", "37 requests", "1,024 prompt"):
        assert part in line
    assert "\n" not in line
