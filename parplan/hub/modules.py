"""Names of a checkpoint's modules, and globs of them: which layers a list of names covers.

Names are matched as globs, never run as regular expressions: a pasted config cannot make matching slow.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice, product

from parplan.hub.fields import ConfigError, Fields, shown

MOST_MODULES = 1024
LONGEST_NAME = 512
MOST_MTP = 16
"""Multi-token-prediction layers are numbered after the model's own."""
LAYER = re.compile(r"(?:^|[.*])(?:layers|blocks|h)\.([0-9]+\*?|\*)(?:\.|$)")
TOWER = re.compile(r"visual|vision|audio|mm_projector|multi_modal_projector")
"""Names of towers: stored as they are, whatever the list says."""
PREFIX = re.compile(r"^(?:language_model\.|model\.)+")


@dataclass(frozen=True)
class Names:
    """Module names and globs, by what stands after the layer number: which layers each one covers."""

    covered: Mapping[str, frozenset[int]]
    everywhere: frozenset[str]
    """Names without a layer number."""

    @staticmethod
    def of(names: Iterable[str], *, layers: int, fields: Fields) -> "Names":
        """Sort names by module.

        Raises:
            ConfigError: far more names, or different ones, than any model has modules.
        """
        covered: dict[str, set[int]] = {}
        everywhere: set[str] = set()
        numbered: dict[str, frozenset[int]] = {}
        for name in names:
            for glob in _globs(name, fields):
                if TOWER.search(glob):
                    continue
                match = None if glob.startswith("mtp") else LAYER.search(glob)
                if match is None:
                    everywhere.add(PREFIX.sub("", glob).strip("."))
                    continue
                number = match.group(1)
                if number not in numbered:
                    numbered[number] = _layers_named(number, layers)
                covered.setdefault(glob[match.end() :].strip("."), set()).update(numbered[number])
            if len(covered) + len(everywhere) > MOST_MODULES:
                raise ConfigError(f"quantization_config names more than {MOST_MODULES} different modules")
        return Names({rest: frozenset(found) for rest, found in covered.items()}, frozenset(everywhere))

    def layers_of(self, module: str, *, layers: frozenset[int]) -> frozenset[int]:
        """The layers, of those given, in which a module is named."""
        if any(_names(glob, module) for glob in self.everywhere):
            return layers
        found = (where for rest, where in self.covered.items() if not rest or _names(rest, module))
        return frozenset().union(*found) & layers

    def outside(self, modules: Sequence[str]) -> bool:
        """A module outside the layers is named."""
        return any(_names(glob, module) for glob in self.everywhere for module in modules)


def _names(glob: str, module: str) -> bool:
    """A name covers a module when it is a run of its dotted parts.

    >>> _names("gate", "mlp.gate"), _names("gate", "mlp.gate_proj"), _names("*self_attn*", "self_attn.o_proj")
    (True, False, True)
    """
    return fnmatchcase(f"..{module}..", f"*.{glob}.*")


def _layers_named(number: str, layers: int) -> frozenset[int]:
    if number.isdigit():
        return frozenset({int(number)})
    return frozenset(layer for layer in range(layers + MOST_MTP) if fnmatchcase(str(layer), number))


def _globs(name: str, fields: Fields) -> list[str]:
    """A module name, a glob, or "re:" and a regular expression, as globs.

    >>> _globs("re:.*mlp\\\\.(gate|down)_proj.*", Fields({}))
    ['*mlp.gate_proj*', '*mlp.down_proj*']
    """
    if len(name) > LONGEST_NAME:
        raise ConfigError(f"a module name in quantization_config is too long: {shown(name)}")
    if not name.startswith("re:"):
        return [name]
    glob = name[3:].removeprefix("^").removesuffix("$").replace(r"\.", ".").replace("(?:", "(")
    for pattern in (r"\d+", "[0-9]+", ".*", ".+"):
        glob = glob.replace(pattern, "*")
    pieces = re.split(r"\(([^()]*)\)", glob)
    if len(pieces) > 9 or set("".join(pieces[::2])) & set("\\[]{}()+?|^$"):
        fields.assume(
            f"pattern {shown(name)} in quantization_config is not understood: taken to match nothing"
        )
        return []
    options = [piece.split("|") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ["".join(choice) for choice in islice(product(*options), 64)]
