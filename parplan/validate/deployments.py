"""What a row says was run: model, formats, engine and layout, resolved."""

from dataclasses import dataclass

from parplan import catalog
from parplan.calibration import Engine
from parplan.formats import Precision
from parplan.layout import Layout
from parplan.problem import chosen_precision
from parplan.transformer import Transformer
from parplan.validate.cells import Cells
from parplan.validate.names import (
    engine_named,
    kv_format,
    published_in,
    transformer_named,
    weight_format,
)


@dataclass(frozen=True)
class Deployment:
    """What a row says was run."""

    transformer: Transformer
    precision: Precision
    engine: Engine
    layout: Layout
    assumed_build: bool
    """The row is of a 4-bit float build that is not in the catalogue; builds differ in what they leave wider."""

    def group(self, *, gpu: str) -> dict[str, str]:
        """The groups it belongs to."""
        return {
            "engine": self.engine.name,
            "gpu": gpu,
            "model": self.transformer.name,
            "precision": self.precision.weights[self.transformer.main_component].name,
            "layout": str(self.layout),
        }


def deployment(cells: Cells, *, weights: str, kv: str, version: str, layout: Layout) -> Deployment:
    """The names of a row, resolved.

    Raises:
        RowError: a name the catalogue does not know.
    """
    stored = weight_format(cells["model"], stated=cells[weights])
    transformer = transformer_named(cells["model"].strip(), weights=stored)
    precision = chosen_precision(
        transformer,
        weights=None if stored is None or published_in(transformer, stored) else stored,
        kv=kv_format(cells[kv]),
        formats=catalog.formats(),
    )
    engine = engine_named(cells["engine"], version=cells[version])
    return Deployment(
        transformer=transformer,
        precision=precision,
        engine=engine,
        layout=layout,
        assumed_build=bool(
            stored and stored.arithmetic in ("fp4", "fp4xfp8") and not published_in(transformer, stored)
        ),
    )
