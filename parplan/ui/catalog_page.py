"""The catalogue: every fact the plans rest on, with its source, searchable."""

from collections.abc import Callable
from datetime import date

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.hardware import Gpu
from parplan.hub import Summary
from parplan.ui.figures import room_for_tools
from parplan.ui.prices import price_day, worth
from parplan.ui.words import cited, plain
from parplan.units import GIB

BILLION, TERA, GIGA = 1e9, 1e12, 1e9
SIZES = (0, 1, 3, 8, 15, 40, 80, 150, 300, 700, 3000)
"""Where the slider over total parameters stops, billions."""
FORMATS = {
    name: st.column_config.NumberColumn(format=shown)
    for name, shown in (
        ("Parameters, billion", "%.2f"),
        ("Active, billion", "%.2f"),
        ("Longest sequence", "localized"),
        ("Usable memory, GiB", "%.2f"),
        ("Bandwidth, TB/s", "%.2f"),
        ("BF16, TFLOP/s", "%.0f"),
        ("FP8, TFLOP/s", "%.0f"),
        ("FP4, TFLOP/s", "%.0f"),
        ("Link one way, GB/s", "%.0f"),
        ("Network, GB/s", "%.1f"),
        ("vCPUs", "localized"),
        ("RAM, GiB", "localized"),
        ("USD per hour", "%.2f"),
        ("USD per GPU and hour", "%.2f"),
        ("Bits per number", "%.3f"),
        ("TDP, W", "%.0f"),
        ("Year", "%d"),
    )
}


def show() -> None:
    """One table per kind of fact; only the open one is built."""
    st.subheader("What is known, and from where", anchor=False)
    views: dict[str, Callable[[], pd.DataFrame]] = {
        "Models": _models, "GPUs": gpus, "Instances": _instances, "Formats": formats, "Engines": engines,
    }  # fmt: skip
    for tab, (name, view) in zip(
        st.tabs(list(views), key="_facts", on_change="rerun"), views.items(), strict=True
    ):
        if tab.open:
            with tab:
                _shown(name, view())


def _shown(name: str, table: pd.DataFrame) -> None:
    if table.empty:
        st.text("Nothing in the catalogue is like that.")
        return
    room_for_tools()
    st.dataframe(
        table,
        key=f"facts_{name}",
        hide_index=True,
        placeholder="",
        height=560,
        column_config={table.columns[0]: st.column_config.TextColumn(pinned=True), **FORMATS},
        alt=f"{name} in the catalogue with their sources",
    )
    counted_from = " Parameters are counted from each model's config.json." if name == "Models" else ""
    st.caption(f"{len(table):,} listed.{counted_from}")


def _models() -> pd.DataFrame:
    """The models that are looked for."""
    known = catalog.model_summaries()
    kinds = sorted({found.kind for found in known})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        words = st.text_input(
            "Search", key="_words", placeholder="name, family, attention, format", max_chars=100, width=320
        )
        kind = st.pills("Kind", kinds, key="_kind", width="content")
        low, high = st.select_slider(
            "Total parameters, billion", SIZES, value=(SIZES[0], SIZES[-1]), key="_sizes", width=320
        )
    listed = [
        found
        for found in known
        if found.matches(words)
        and kind in (None, found.kind)
        and low * BILLION <= found.total <= high * BILLION
    ]
    table = models()
    return table[table["Model"].isin([found.name for found in listed])]


@st.cache_resource(show_spinner="Reading the models")
def models() -> pd.DataFrame:
    """All models, counted from their configs."""
    return pd.DataFrame(_model(found) for found in catalog.model_summaries())


def _model(found: Summary) -> dict[str, object]:
    entry = catalog.model(found.name)
    return {
        "Model": found.name,
        "Parameters, billion": found.total / BILLION,
        "Active, billion": found.active / BILLION,
        "Kind": found.kind,
        "Attention": ", ".join(found.attention),
        "Longest sequence": found.context,
        "Published in": found.native,
        "Family": found.family,
        "Also": ", ".join(found.aliases),
        "Assumed": " ".join(entry.transformer.assumed),
        "Source": cited([entry.source]),
    }


def _peak(gpu: Gpu, arithmetic: str) -> float | None:
    return next((peak / TERA for name, peak in gpu.peaks.items() if name == arithmetic), None)


def gpus() -> pd.DataFrame:
    """All GPUs; rates are dense, links one way."""
    return pd.DataFrame(
        {
            "GPU": gpu.name,
            "Name": gpu.label,
            "Vendor": gpu.vendor,
            "Usable memory, GiB": gpu.memory / GIB,
            "Bandwidth, TB/s": gpu.bandwidth / TERA,
            "BF16, TFLOP/s": _peak(gpu, "bf16"),
            "FP8, TFLOP/s": _peak(gpu, "fp8"),
            "FP4, TFLOP/s": _peak(gpu, "fp4"),
            "Link": gpu.fabric,
            "Link one way, GB/s": gpu.link / GIGA,
            "Fast domain, GPUs": gpu.domain,
            "Network, GB/s": gpu.network / GIGA if gpu.network else None,
            "TDP, W": gpu.tdp,
            "Year": gpu.year,
            "Note": gpu.note,
            "Source": cited(gpu.sources.values()),
        }
        for gpu in catalog.gpus().values()
    )


def _instances() -> pd.DataFrame:
    """The machines that are looked for, and what their prices are worth."""
    table = instances()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for column in ("Provider", "GPU"):
            picked = st.multiselect(
                column, sorted(table[column].unique()), key=f"_only_{column}", placeholder="All", width=320
            )
            if picked:
                table = table[table[column].isin(picked)]
    today, listed = date.today(), set(table["Instance"])
    days = [found.priced for found in catalog.instances() if found.price and found.name in listed]
    st.caption(f"{len(table)} machines. List prices on demand. {worth(days, today=today)}")
    missing = "; ".join(
        f"{provider}: {', '.join(catalog.gpus()[gpu].label for gpu in gpus)}"
        for provider, gpus in catalog.unsized().items()
    )
    st.caption(plain(f"Missing, as it was not found in which sizes they are sold: {missing}."))
    return table


def instances() -> pd.DataFrame:
    """All machines that can be rented."""
    return pd.DataFrame(
        {
            "Instance": instance.name,
            "Provider": instance.provider,
            "GPU": instance.gpu,
            "GPUs": instance.gpus,
            "USD per hour": instance.price,
            "USD per GPU and hour": instance.price / instance.gpus if instance.price else None,
            "Price of": price_day(instance.priced, today=date.today()) if instance.price else "",
            "Region": instance.region,
            "Network, GB/s": instance.network / GIGA if instance.network else None,
            "vCPUs": instance.vcpus,
            "RAM, GiB": instance.ram / GIB if instance.ram else None,
            "Note": instance.note,
            "Source": cited(instance.sources),
        }
        for instance in catalog.instances()
    )


def formats() -> pd.DataFrame:
    """All number formats, scales included."""
    return pd.DataFrame(
        {
            "Format": format.name,
            "Name": format.label,
            "Bits per number": format.bits,
            "Block": format.block,
            "Arithmetic": format.arithmetic,
            "Used for": ", ".join(format.kind),
            "Note": format.note,
            "Source": cited(format.sources),
        }
        for format in catalog.formats().values()
    )


def engines() -> pd.DataFrame:
    """All engines whose overheads are known."""
    return pd.DataFrame(
        {
            "Engine": engine.name,
            "Name": engine.label,
            "Versions": engine.versions,
            "Source": cited(engine.all_sources),
        }
        for engine in catalog.engines().values()
    )
