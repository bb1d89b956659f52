"""The catalogue: every fact the plans rest on, with its source."""

from collections.abc import Callable

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.hardware import Gpu
from parplan.ui.words import cited
from parplan.units import GIB


def show() -> None:
    """One table per kind of fact; only the open one is built."""
    st.subheader("What is known, and from where", anchor=False)
    views: dict[str, Callable[[], pd.DataFrame]] = {
        "Models": models, "GPUs": gpus, "Instances": instances, "Formats": formats, "Engines": engines,
    }  # fmt: skip
    for tab, (name, view) in zip(
        st.tabs(list(views), key="_facts", on_change="rerun"), views.items(), strict=True
    ):
        if tab.open:
            with tab:
                table = view()
                st.dataframe(
                    table,
                    key=f"facts_{name}",
                    hide_index=True,
                    height=560,
                    column_config={table.columns[0]: st.column_config.TextColumn(pinned=True), **FORMATS},
                    alt=f"{name} in the catalogue with their sources",
                )


FORMATS = {
    name: st.column_config.NumberColumn(format=shown)
    for name, shown in (
        ("Parameters, billion", "%.2f"),
        ("Active, billion", "%.2f"),
        ("Usable memory, GiB", "%.2f"),
        ("Bandwidth, TB/s", "%.2f"),
        ("BF16, TFLOP/s", "%.0f"),
        ("FP8, TFLOP/s", "%.0f"),
        ("FP4, TFLOP/s", "%.0f"),
        ("Link one way, GB/s", "%.0f"),
        ("Network, GB/s", "%.1f"),
        ("USD per hour", "%.2f"),
        ("Bits per number", "%.3f"),
    )
}


@st.cache_data(show_spinner="Reading the models")
def models() -> pd.DataFrame:
    """All models, counted from their configs."""
    entries = [catalog.model(name) for name in catalog.model_files()]
    return pd.DataFrame(
        {
            "Model": entry.name,
            "Parameters, billion": entry.transformer.total_parameters / BILLION,
            "Active, billion": entry.transformer.active_parameters / BILLION,
            "Layers": len(entry.transformer.sequence),
            "Family": entry.transformer.family,
            "Longest sequence": entry.transformer.context_length,
            "Assumed": " ".join(entry.transformer.assumed),
            "Source": cited([entry.source]),
        }
        for entry in entries
    )


BILLION, TERA, GIGA = 1e9, 1e12, 1e9


def _peak(gpu: Gpu, arithmetic: str) -> float | None:
    return next((peak / TERA for name, peak in gpu.peaks.items() if name == arithmetic), None)


def gpus() -> pd.DataFrame:
    """All GPUs; rates are dense, links one way."""
    return pd.DataFrame(
        {
            "GPU": gpu.name,
            "Name": gpu.label,
            "Usable memory, GiB": gpu.memory / GIB,
            "Bandwidth, TB/s": gpu.bandwidth / TERA,
            "BF16, TFLOP/s": _peak(gpu, "bf16"),
            "FP8, TFLOP/s": _peak(gpu, "fp8"),
            "FP4, TFLOP/s": _peak(gpu, "fp4"),
            "Link": gpu.fabric,
            "Link one way, GB/s": gpu.link / GIGA,
            "Fast domain, GPUs": gpu.domain,
            "Network, GB/s": gpu.network / GIGA if gpu.network else None,
            "Note": gpu.note,
            "Source": cited(gpu.sources.values()),
        }
        for gpu in catalog.gpus().values()
    )


def instances() -> pd.DataFrame:
    """All machines that can be rented."""
    return pd.DataFrame(
        {
            "Instance": instance.name,
            "Provider": instance.provider,
            "GPU": instance.gpu,
            "GPUs": instance.gpus,
            "USD per hour": instance.price,
            "Price of": instance.priced,
            "Region": instance.region,
            "Network, GB/s": instance.network / GIGA if instance.network else None,
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
            "Source": cited(engine.sources),
        }
        for engine in catalog.engines().values()
    )
