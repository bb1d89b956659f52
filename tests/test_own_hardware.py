"""The form for a GPU of one's own, and the tab that says what to buy, without a browser."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from parplan import Scenario
from parplan.links import to_query
from parplan.own_gpu import packed_gpu, unpacked_gpu
from parplan.packing import packed_json
from parplan.units import GIB

APP = Path(__file__).parents[1] / "app.py"
CARD = {
    "label": "Card",
    "vendor": "AMD",
    "architecture": "RDNA5",
    "memory": "94 GiB",
    "bandwidth": "2 TB/s",
    "peaks": {"fp32": "50 TFLOP/s", "bf16": "400 TFLOP/s", "fp8": "800 TFLOP/s"},
    "fabric": "pcie",
    "link": "60 GB/s",
    "domain": 1,
    "node": 6,
}
"""Made up."""


def form() -> None:
    """The form alone, under a GPU selector."""
    import streamlit as st

    from parplan import catalog
    from parplan.ui import own_hardware

    st.selectbox("GPU", [*catalog.gpus(), "own"], key="gpu")
    own_hardware.sidebar()


def run(page: AppTest) -> AppTest:
    page.run()
    assert [(failure.message, failure.stack_trace) for failure in page.exception] == []
    return page


def started(gpu: str) -> AppTest:
    page = run(AppTest.from_function(form, default_timeout=30))
    assert not page.text_input
    page.selectbox(key="_own_start").set_value(gpu)
    return run(page)


@pytest.mark.parametrize("node", ["8.0", 8.0, " 8 ", "8"])
def test_whatever_a_link_may_say_of_a_gpu_fills_the_form(node: object) -> None:
    """Numbers however JSON or people write them; what is null is left out, and the form can be used at once."""
    page = AppTest.from_file(str(APP), default_timeout=30)
    fields = CARD | {"node": node, "peer": None, "tdp": None, "memory": 94 * GIB}
    page.query_params.update({"gpu": "own", "own_gpu": packed_json(fields)})
    run(page)
    assert page.number_input(key="_own_node").value == 8
    assert page.text_input(key="_own_peer").value == page.text_input(key="_own_tdp").value == ""
    page.text_input(key="_own_bandwidth").set_value("3 TB/s")
    run(page)
    assert not any("Not used" in text.value for text in page.text)
    found = unpacked_gpu(page.text_input(key="own_gpu").value or "")
    assert (found.node, found.memory, found.bandwidth) == (8, 94 * GIB, 3e12)


def test_it_starts_from_a_gpu_of_the_catalogue() -> None:
    page = started("gb200-nvl72")
    assert page.selectbox(key="gpu").value == "own"
    assert page.text_input(key="_own_memory").value == "184.31 GiB"
    assert page.number_input(key="_own_domain").value == 72
    assert page.text_input(key="_own_fp4").value == "10000 TFLOP/s"
    assert unpacked_gpu(page.text_input(key="own_gpu").value or "").label == "My GB200 NVL72 186 GB"


def test_a_change_goes_into_the_link_and_a_bad_one_is_refused_with_the_reason() -> None:
    page = started("h100-sxm")
    page.text_input(key="_own_bandwidth").set_value("4.8 TB/s")
    run(page)
    packed = page.text_input(key="own_gpu").value or ""
    assert unpacked_gpu(packed).bandwidth == 4.8e12
    page.text_input(key="_own_bandwidth").set_value("fast")
    run(page)
    assert page.text_input(key="own_gpu").value == packed
    assert page.text[0].value == "Not used: bandwidth: 'fast' is not a quantity in B/s"
    page.text_input(key="_own_bandwidth").set_value("4 TB/s")
    run(page)
    assert not page.text
    assert unpacked_gpu(page.text_input(key="own_gpu").value or "").bandwidth == 4e12


def test_an_empty_field_is_left_out() -> None:
    page = started("h100-sxm")
    for key in ("_own_network", "_own_tdp", "_own_fp8"):
        page.text_input(key=key).set_value("")
        run(page)
    gpu = unpacked_gpu(page.text_input(key="own_gpu").value or "")
    assert (gpu.network, gpu.tdp) == (None, None)
    assert "fp8" not in gpu.peaks


def test_it_is_still_there_after_a_look_at_another_gpu() -> None:
    page = started("mi300x")
    page.text_input(key="_own_label").set_value("Our card")
    packed = run(page).text_input(key="own_gpu").value
    for gpu in ("h100-sxm", "own"):
        page.selectbox(key="gpu").set_value(gpu)
        run(page)
    assert page.text_input(key="own_gpu").value == packed
    assert page.text_input(key="_own_label").value == "Our card"


def bought(scenario: Scenario) -> AppTest:
    """The tab "Buy" of a scenario."""
    page = AppTest.from_file(str(APP), default_timeout=30)
    page.query_params.update(to_query(scenario, full=False))
    run(page).session_state["view"] = "Buy"
    return run(page)


def said(page: AppTest) -> str:
    """All its words, as people see them."""
    return "\n".join(str(one.value) for one in (*page.markdown, *page.caption, *page.text)).replace("\\", "")


def test_old_list_prices_say_so_and_energy_is_shown() -> None:
    page = bought(Scenario(tpot=40))
    assert "List prices on demand." in said(page)
    assert "older than 30 days" in said(page)
    assert "J per output token, all GPUs at their limit of 700 W" in said(page)
    assert "Goes on while any one machine is lost" in said(page)
    assert len(page.dataframe) == 4
    assert [(one.label, one.value) for one in page.metric if "answer" in one.label] == [
        ("GPUs in the full answer", "2")
    ]


@pytest.mark.parametrize(
    ("change", "words", "factor"),
    [
        ({"discount": 25.0}, "25 % off list prices on demand.", 0.75),
        ({"gpu_hour": 1.5}, "Your own price: 1.50 USD per GPU and hour.", None),
        (
            {"gpu_hour": 1.5, "discount": 25.0},
            "the discount of 25 % is for list prices and not taken off it.",
            None,
        ),
    ],
)
def test_prices_are_shown_as_what_they_are(
    change: dict[str, float], words: str, factor: float | None
) -> None:
    page, listed = bought(Scenario(**change)), bought(Scenario())
    assert words in said(page)
    here, there = (one.dataframe[0].value for one in (page, listed))
    if factor:
        assert here["USD/hour"].tolist() == pytest.approx((factor * there["USD/hour"]).tolist())
    else:
        assert here["USD/hour"].tolist() == [1.5 * gpus for gpus in here["GPUs"]]
        assert set(here["Provider"]) == {"yours"}
        assert "older than" not in said(page)


def test_a_gpu_nobody_sells_and_without_a_price_can_be_bought_from_oneself() -> None:
    page = bought(Scenario(gpu="own", own_gpu=packed_gpu(CARD)))
    assert "give a price per GPU and hour" in said(page)
    assert "power limit of this GPU is not known" in said(page)
    assert "USD/hour" not in page.dataframe[0].value
