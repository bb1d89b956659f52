"""How wrong the numbers are: published measurements the plans are checked against."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.calibration import Cause, Errors
from parplan.refit import FACTORS, Refit, refit
from parplan.ui import inputs
from parplan.ui.accuracy_chart import Point, predicted_against_measured
from parplan.ui.figures import draw, room_for_tools, theme
from parplan.ui.measured import Quantity, quantities
from parplan.ui.words import plain
from parplan.units import written_share
from parplan.validate import (
    GROUPS,
    MARKS,
    SPEED_COLUMNS,
    UNUSED,
    VERDICT,
    Report,
    Row,
    marks,
    number,
    relative_error,
    report_of,
    source_url,
    validation,
    why_wrong,
    worst_groups,
    written_group,
)

YOURS = "Yours"
MOST_ROWS = 2000
"""Rows of an uploaded file that are predicted."""
EXAMPLE_ROWS = 3
"""Rows of the example file."""
MOST_GROUPS = 12
"""Worst groups that are named."""
IN_SIGHT = 4
"""Of these, how many before the others are asked for."""
ENGINE = "engine"
FITTED = {"tpot_ms": "tpot", "ttft_ms": "ttft"}
"""Columns the speed constants are fitted to, and the name of their errors in cross-validation."""
UNSEEN = {"fitted": "(saw all)", "pairs": "model on GPU", "models": "model", "gpus": "GPU"}
"""What the constants did not know when they predicted a point, by the name of the error."""
FILTERED = GROUPS
"""Kinds of group that can be picked from."""
RUN = {
    "version": "Version",
    "engine_version": "Version",
    "prompt_tokens": "Prompt",
    "output_tokens": "Output",
    "concurrency": "Requests",
    "fw_version": "Version",
    "isl": "Prompt",
    "osl": "Output",
    "concurrency_or_batch": "Requests",
}
"""Cells that say how a measurement was run."""
SHOWN = {
    "Median error": "Half of the predictions are closer than this.",
    "90th percentile": "Nine in ten predictions are closer than this.",
    "Bias": "Median of the signed error; above zero: predicted too high.",
}
ERRORS = {name: st.column_config.NumberColumn(format="percent", help=about) for name, about in SHOWN.items()}


def measurements() -> dict[str, Path]:
    """Files of measurements in the catalogue, by what is on their tab; speed first."""
    files = sorted(
        (catalog.ROOT / "measurements").glob("*.csv"), key=lambda path: (path.stem != "speed", path.stem)
    )
    return {path.stem.capitalize(): path for path in files}


@st.cache_resource(show_spinner="Predicting every measurement")
def report(path: Path) -> Report:
    """A file of measurements, predicted once per process."""
    return validation(path)


def show() -> None:
    """One tab per file of measurements, and one for the reader's own; only the open one is predicted."""
    st.subheader("How wrong the numbers are", anchor=False)
    st.text(
        "Every published measurement in the catalogue is predicted from its configuration alone and compared."
    )
    files = measurements()
    names = [*files, YOURS]
    for tab, name in zip(st.tabs(names, key="_measured", on_change="rerun"), names, strict=True):
        if tab.open:
            with tab:
                found = report(files[name]) if name in files else _yours()
                if found:
                    _report(name, found)


def _yours() -> Report | None:
    """An uploaded file, predicted, below what its times say about the constants."""
    st.text(
        "A CSV file with the columns of a file in catalogs/measurements: at most 1 MB, of which "
        f"{MOST_ROWS:,} rows are read. It is gone when you leave."
    )
    st.download_button(
        "Example file",
        example,
        file_name="measurements.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
        help="Times per token and to first token; flags, versions and formats may be empty.",
    )
    given = st.file_uploader("Your measurements", type="csv", key="_yours")
    if given is None:
        return None
    try:
        found, fitted = _kept(given.getvalue())
    except (ValueError, csv.Error) as error:
        st.text(f"Not read: {error}")
        return None
    if fitted:
        _fitted(fitted)
    return found


def example() -> str:
    """The head and the first rows of the catalogue's times, to fill in."""
    lines = measurements()["Speed"].read_text(encoding="utf-8").splitlines()
    return "\n".join(lines[: 1 + EXAMPLE_ROWS]) + "\n"


@st.cache_resource(show_spinner="Predicting every measurement", scope="session", max_entries=1)
def _kept(content: bytes) -> tuple[Report, Refit | str]:
    """The last uploaded file, predicted and fitted to once per visit."""
    found = read(content)
    return found, fit_to(found)


def read(content: bytes) -> Report:
    """The measurements of a CSV file, predicted.

    Raises:
        ValueError: it is not UTF-8, or its columns are not those of any kind of measurement.
        csv.Error: it is no CSV file.
    """
    reader = csv.DictReader(io.StringIO(content.decode("utf-8-sig")))
    columns = tuple(reader.fieldnames or ())
    cells = [{name: row.get(name) or "" for name in columns} for row in islice(reader, MOST_ROWS)]
    return report_of(cells, columns=columns)


def fit_to(found: Report) -> Refit | str:
    """Factors that bring the engine's predictions nearest to the reader's times, or why there are none.

    Empty for a file without times.
    """
    if not set(SPEED_COLUMNS) & set(found.measured):
        return ""
    try:
        return refit([row.cells for row in found.rows])
    except ValueError as error:
        return f"Nothing to fit the speed constants to: {error}."


def _fitted(factors: Refit | str) -> None:
    """The factors, what they are worth, and a way to plan with them."""
    if isinstance(factors, str):
        st.text(factors)
        return
    scales = {f"{name}_scale": getattr(factors, name) for name in FACTORS}
    said = "; ".join(
        f"{column.removesuffix('_ms').upper()}: median error {written_share(before.median, decimals=1)} before, "
        f"{written_share(factors.after[column].median, decimals=1)} after ({before.rows} rows)"
        for column, before in factors.before.items()
    )
    with st.container(border=True):
        st.markdown("**Fitted to your times**")
        st.text(", ".join(f"{name} × {getattr(factors, name):g}" for name in FACTORS))
        st.text(said)
        st.button(
            "Plan with these factors",
            on_click=lambda: inputs.take(inputs.scenario().model_copy(update=scales)),
            icon=":material/arrow_forward:",
            help="They scale the memory rates, arithmetic rates and overheads, and travel in the link.",
        )


def heading(kind: str) -> str:
    """A kind of group, as people read it."""
    return "GPU" if kind == "gpu" else kind.capitalize()


def _report(name: str, found: Report) -> None:
    compared = {quantity.label: quantity for quantity in quantities(found)}
    if not compared:
        st.text("No row could be predicted.")
        _skipped(found)
        return
    with st.grid(len(FILTERED) + 1, min_column_width=150):
        label = st.selectbox("Measured", list(compared), key=f"_quantity_{name}")
        picked = {kind: _picked(name, found, kind) for kind in FILTERED}
    quantity = compared[label]
    left_out = _left_out(name, found, quantity)
    rows = (row for row in found.rows if quantity.of(row) and not marks(row) & left_out)
    within = replace(
        found,
        rows=tuple(row for row in rows if all(row.group.get(kind) in picked[kind] for kind in FILTERED)),
    )
    _overall(within, quantity.column)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _picture(name, within, quantity)
    with right:
        _groups(name, within, quantity.column)
    if name != YOURS:
        _left_out_in_turn(quantity)
    _worst(within, quantity.column, causes=() if name == YOURS else catalog.causes())
    _rows(name, within, quantity)
    if within.verdicts:
        st.text(verdict_words(within, causes=catalog.causes()))
    _skipped(found)


def _picked(name: str, found: Report, kind: str) -> set[str | None]:
    """The groups of one kind that are asked for; nothing picked means all, rows that were not understood too."""
    values = sorted({row.group[kind] for row in found.rows if kind in row.group})
    picked = st.multiselect(heading(kind), values, key=f"_{kind}_{name}", placeholder="All")
    return set(picked) or {None, *values}


def _left_out(name: str, found: Report, quantity: Quantity) -> set[str]:
    """Marks of the rows to leave out."""
    known = [mark for mark in MARKS if any(mark in marks(row) for row in found.rows)]
    if not known:
        return set()
    return set(
        st.pills(
            "Leave out rows marked",
            known,
            selection_mode="multi",
            default=[mark for mark in UNUSED.get(quantity.column, ()) if mark in known],
            key=f"_marks_{name}_{quantity.column}",
            help="  \n".join(f"{mark}: {MARKS[mark]}." for mark in known),
        )
    )


def _overall(within: Report, column: str) -> None:
    """The error over all rows that are left."""
    errors = within.errors(column)
    if errors is None:
        return
    with st.grid(len(SHOWN) + 1, min_column_width=150):
        for label, value in zip(SHOWN, (errors.median, errors.p90, errors.bias), strict=True):
            shown = ("+" if label == "Bias" and value > 0 else "") + written_share(value, decimals=1)
            st.metric(label, shown, border=True, help=SHOWN[label])
        st.metric("Points compared", f"{errors.rows:,}", border=True)


def _worst(within: Report, column: str, *, causes: Sequence[Cause]) -> None:
    """The groups that are worst, and why."""
    groups = worst_groups(within, column, causes=causes, most=MOST_GROUPS)
    if not groups:
        return
    st.markdown("**The worst groups, and why**")
    lines = [f"- {plain(written_group(group))}" for group in groups]
    st.markdown("\n".join(lines[:IN_SIGHT]))
    if more := lines[IN_SIGHT:]:
        with st.expander(f"{len(more)} more"):
            st.markdown("\n".join(more))


def _picture(name: str, within: Report, quantity: Quantity) -> None:
    points = [point for row in within.rows if (point := _point(row, quantity.column))]
    if points:
        draw(predicted_against_measured(points, unit=quantity.label, theme=theme()), key=f"accuracy_{name}")
        st.caption("On the line the prediction is right; the dotted lines are a factor of 1.25 away.")
    else:
        st.text("Nothing is left to compare.")


def _point(row: Row, column: str) -> Point | None:
    measured, predicted = number(row.cells.get(column)), row.predicted.get(column)
    if not measured or predicted is None or measured <= 0 or predicted <= 0:
        return None
    group = row.group
    requests = number(row.cells.get("concurrency"))
    words = f"{group['model']}, {group['precision']}<br>{group['layout']} on {group['gpu']}, {group[ENGINE]}"
    return Point(
        group=group[ENGINE],
        words=f"{words}<br>{requests:,.0f} requests" if requests else words,
        measured=measured,
        predicted=predicted,
    )


def _groups(name: str, within: Report, column: str) -> None:
    kind = st.segmented_control(
        "Errors by",
        within.kinds,
        default=ENGINE,
        required=True,
        key=f"_by_{name}",
        format_func=heading,
    )
    room_for_tools()
    st.dataframe(
        table(within, by=kind or ENGINE, column=column),
        key=f"errors_{name}",
        hide_index=True,
        placeholder="",
        column_config=ERRORS | {"Group": st.column_config.TextColumn(pinned=True)},
        alt=f"Errors of the predictions by {kind}",
    )


def table(within: Report, *, by: str, column: str) -> pd.DataFrame:
    """Errors of one measured column per group, worst first."""
    groups = sorted(within.by_group(by, column).items(), key=lambda item: -item[1].median)
    rows = [
        _error_row(group, (errors.rows, errors.median, errors.p90, errors.bias)) for group, errors in groups
    ]
    return pd.DataFrame(rows, columns=["Group", "Rows", *SHOWN])


def _error_row(group: str, errors: tuple[int, float, float, float]) -> Mapping[str, object]:
    return {"Group": group} | dict(zip(("Rows", *SHOWN), errors, strict=True))


def _left_out_in_turn(quantity: Quantity) -> None:
    """Errors of the speed constants on models and GPUs they were not fitted to."""
    if quantity.column not in FITTED:
        return
    st.markdown("**Predicted by constants that never saw ...**")
    room_for_tools()
    st.dataframe(
        unseen_table(FITTED[quantity.column]),
        key="left_out_in_turn",
        hide_index=True,
        placeholder="",
        column_config={"Engine": st.column_config.TextColumn(pinned=True)},
        alt="Errors on models and GPUs that the constants were not fitted to, by engine",
    )
    st.caption(
        "Median error (90th percentile). The bands beside the plan's times are these: the less was measured of a plan, "
        "the wider; and never narrower than the median error of what was measured of the plan itself."
    )


def unseen_table(time: str) -> pd.DataFrame:
    """Errors of one kind of time in cross-validation, by engine and what was left out of the fit."""
    return pd.DataFrame(
        [
            {"Engine": engine.label}
            | {words: _errors_words(getattr(errors, kind)) for kind, words in UNSEEN.items()}
            for engine in catalog.engines().values()
            if engine.errors and engine.name == engine.family
            for errors in [getattr(engine.errors, time)]
        ]
    )


def _errors_words(errors: Errors) -> str:
    return f"{written_share(errors.median, decimals=1)} ({written_share(errors.p90)})"


def _rows(name: str, within: Report, quantity: Quantity) -> None:
    """Every point with its source."""
    st.markdown("**Every point, with its source**")
    room_for_tools()
    st.dataframe(
        points_table(within.rows, quantity.column),
        key=f"points_{name}",
        hide_index=True,
        placeholder="",
        height=320,
        column_config={
            "Measured": st.column_config.NumberColumn(format="%,.2f", help=quantity.label),
            "Predicted": st.column_config.NumberColumn(format="%,.2f", help=quantity.label),
            "Error": st.column_config.NumberColumn(format="percent"),
            "Link": st.column_config.LinkColumn(display_text="Open", width="small", help="Where it was read"),
        },
        alt="Every measurement with its prediction and its source",
    )


def points_table(rows: Sequence[Row], column: str) -> pd.DataFrame:
    """The rows that state a column and were predicted, worst first."""
    errors = [(abs(error), row) for row in rows if (error := relative_error(row, column)) is not None]
    worst_first = sorted(errors, key=lambda pair: -pair[0])
    return pd.DataFrame([_point_row(row, column) for _, row in worst_first])


def _point_row(row: Row, column: str) -> Mapping[str, object]:
    return {
        "Link": source_url(row.cells.get("source", "")),
        **{heading(kind): group for kind, group in row.group.items()},
        **{label: row.cells[cell] for cell, label in RUN.items() if cell in row.cells},
        "Measured": number(row.cells[column]),
        "Predicted": row.predicted[column],
        "Error": relative_error(row, column),
        "Source": row.cells.get("source", ""),
        "Marks": row.cells.get("flags", ""),
    }


def verdict_words(within: Report, *, causes: Sequence[Cause]) -> str:
    """How often it was said rightly whether a deployment fits, where it was not, and why."""
    verdicts, wrong = within.verdicts, within.wrong_verdicts
    said = [
        f"{row.cells.get('id', '')} {row.cells['model']}: predicted {row.verdict}, was {row.cells[VERDICT]}. "
        + why_wrong(row, causes)
        for row in wrong
    ]
    return "\n".join(
        [f"Whether it fits: {len(verdicts) - len(wrong)} of {len(verdicts)} verdicts are right.", *said]
    )


def _skipped(found: Report) -> None:
    predicted = sum(1 for row in found.rows if row.predicted)
    if predicted == len(found.rows):
        return
    with st.expander(f"{predicted} of {len(found.rows)} rows are predicted; why the others are not"):
        for reason, rows in found.skipped.items():
            st.markdown(f"{rows} × {plain(reason)}")
