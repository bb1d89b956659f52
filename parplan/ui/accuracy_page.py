"""How wrong the numbers are: published measurements the plans are checked against."""

import pandas as pd
import streamlit as st

from parplan import catalog
from parplan.ui.words import plain
from parplan.validate import Errors, Report, validation

EVERYTHING = "everything"
WORDS = {"gib": "GiB", "gpu": "GPU", "kv": "KV", "ttft": "time to first token,", "tpot": "time per token,"}
"""Column names, as people read them."""


@st.cache_resource(show_spinner="Predicting every measurement")
def reports() -> dict[str, Report]:
    """The measurements in the catalogue, predicted once per process, by file."""
    return {path.stem: validation(path) for path in sorted((catalog.ROOT / "measurements").glob("*.csv"))}


def show() -> None:
    """One tab per file of measurements."""
    st.subheader("How wrong the numbers are", anchor=False)
    st.text(
        "Every published measurement in the catalogue is predicted from its configuration alone and compared."
    )
    found = reports()
    if not found:
        st.text("The catalogue holds no measurements.")
        return
    for tab, (name, report) in zip(
        st.tabs([name.capitalize() for name in found]), found.items(), strict=True
    ):
        with tab:
            _report(name, report)


def _report(name: str, report: Report) -> None:
    kinds = sorted({kind for row in report.rows for kind in row.group})
    by = st.segmented_control(
        "Group by", [EVERYTHING, *kinds], default=EVERYTHING, required=True, key=f"_by_{name}"
    )
    st.dataframe(
        table(report, by=by or EVERYTHING),
        key=f"errors_{name}",
        hide_index=True,
        column_config={
            column: st.column_config.NumberColumn(format="percent", help=about)
            for column, about in SHOWN.items()
        },
        alt="Errors of the predictions",
    )
    if verdicts := report.verdicts:
        right = len(verdicts) - len(report.wrong_verdicts)
        st.text(f"Whether it fits: {right} of {len(verdicts)} verdicts are right.")
    predicted = sum(1 for row in report.rows if row.predicted)
    with st.expander(f"{predicted} of {len(report.rows)} rows are predicted; why the others are not"):
        for reason, rows in report.skipped.items():
            st.markdown(f"{rows} × {plain(reason)}")


SHOWN = {
    "Median error": "Half of the predictions are closer than this.",
    "90th percentile": "Nine in ten predictions are closer than this.",
    "Bias": "Median of the signed error; above zero: predicted too high.",
}


def table(report: Report, *, by: str) -> pd.DataFrame:
    """Errors of every measured column, over all rows or per group."""
    rows = []
    for column in report.measured:
        overall = report.errors(column)
        groups = report.by_group(by, column) if by != EVERYTHING else {"all": overall} if overall else {}
        rows += [_row(column, group, errors) for group, errors in groups.items()]
    return pd.DataFrame(rows, columns=["Measured", "Group", "Rows", *SHOWN])


def _row(column: str, group: str, errors: Errors) -> dict[str, object]:
    values = dict(zip(SHOWN, (errors.median, errors.p90, errors.bias), strict=True))
    return {
        "Measured": " ".join(WORDS.get(word, word) for word in column.split("_")),
        "Group": group,
        "Rows": errors.count,
        **values,
    }
