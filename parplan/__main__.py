"""The command line: `python -m parplan plan | model | validate | log | gpus | models | link`."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from parplan import catalog, export, links, logs, validate
from parplan.advice import per_token
from parplan.balance import balance
from parplan.hub import ConfigError, DownloadError, Hub, transformer_from_config
from parplan.ladder import Rung
from parplan.scenario import Answer, Scenario, plan
from parplan.transformer import Transformer
from parplan.units import counted, written_bytes, written_time

BAD_INPUT = 2
"""Exit status when something asked for is unknown or malformed."""


class BadInputError(Exception):
    """What was asked for makes no sense; the message says why."""


def scenario_of(words: Sequence[str]) -> Scenario:
    """A scenario from KEY=VALUE words, or from one whole link or query string.

    Raises:
        BadInputError: an unknown key or name, or a value out of range; on the command line nothing is replaced.
    """
    linked = len(words) == 1 and ("?" in words[0] or "&" in words[0])
    if not linked and (bad := [word for word in words if "=" not in word]):
        raise BadInputError(f"{bad[0]!r} is not KEY=VALUE; keys: {', '.join(Scenario.model_fields)}")
    given: dict[str, list[str]] = {}
    for key, _, value in (word.partition("=") for word in words):
        given.setdefault(key, []).append(value)
    found = links.read(links.parsed(words[0]) if linked else given)
    if found.complaints:
        raise BadInputError("; ".join(complaint.wrong for complaint in found.complaints))
    for change in found.changes:
        print(f"changed since the link was made: {change}", file=sys.stderr)
    return found.scenario


def transformer_of(name: str, *, hub: bool) -> Transformer:
    """A model from the catalogue, or from a config.json.

    Args:
        hub: ask the Hub for a model the catalogue does not know.

    Raises:
        BadInputError: no such model, no such file, or not a model's config.
    """
    path = Path(name)
    try:
        is_file = path.suffix == ".json" or path.is_file()
    except OSError as error:
        raise BadInputError(f"{name[:80]}: {error.strerror}") from error
    if is_file:
        try:
            return transformer_from_config(json.loads(path.read_bytes()), name=path.stem)
        except OSError as error:
            raise BadInputError(f"{name}: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, ConfigError) else f"not JSON ({error})"
            raise BadInputError(f"{name}: {reason}") from error
    try:
        return catalog.transformer(name)
    except catalog.UnknownNameError as error:
        if not hub:
            raise BadInputError(f"{error}; --hub asks the Hub") from error
    try:
        return Hub.from_environment().entry(name).transformer
    except (DownloadError, ConfigError) as error:
        raise BadInputError(f"{name}: {error}") from error


def written_answer(answer: Answer) -> str:
    """An answer as a person reads it on a terminal."""
    advice, result = answer.advice, answer.result
    lines = [
        answer.verdict,
        *filter(None, [advice.shortfall, advice.sharing, answer.load_words]),
        "",
        *advice.reasons,
        *([advice.runner_up.words] if advice.runner_up else []),
        *advice.alternatives,
        "",
        *_memory_lines(answer),
        *_load_lines(answer),
        f"Napkin: {advice.napkin_note}",
        "",
    ]
    lines += [_rung_line(rung) for rung in advice.ladder]
    heads = (
        ("GPUs", 5),
        ("weights", 11),
        ("KV room", 11),
        ("holds", 9),
        ("per token", 11),
        ("first", 9),
        ("tok/s/GPU", 11),
    )
    if answer.borne:
        at_once = counted(answer.scenario.concurrency, "request")
        lines += ["", f"One replica of each layout, with {at_once} at once:"]
    lines += ["", f"{'layout':<20}" + "".join(f"{name:>{width}}" for name, width in heads)]
    for index in (i for i in range(result.shape[0]) if result.legal[i]):
        one = result.plan(index)
        lines.append(
            f"{one.layout!s:<20}{one.gpus:>5}{written_bytes(float(one.memory.weights)):>11}"
            f"{written_bytes(float(one.memory.pool)):>11}{int(one.memory.capacity):>9,}"
            f"{per_token(one):>11}{written_time(float(one.serving.ttft)):>9}"
            f"{float(one.serving.tokens_per_s_per_gpu):>11,.0f}"
        )
    return "\n".join(lines)


def _rung_line(rung: Rung) -> str:
    """A step of the ladder: its size, the cheapest machines, and what is to be said of it."""
    if rung.plan is None:
        return f"{rung.name}: none within the limit"
    offer = next((p for p in rung.purchases if p.price is not None), None)
    if offer:
        price = f"from {offer.count} × {offer.instance.provider} {offer.instance.name} at {offer.price:,.2f} USD/h"
    elif rung.purchases:
        first = rung.purchases[0]
        price = f"{first.count} × {first.instance.provider} {first.instance.name}, no price published"
    else:
        return f"{rung.name}: {rung.size}. {rung.unsold} gpu_hour=USD reckons with a price of your own."
    return " ".join(filter(None, (f"{rung.name}: {rung.size}; {price}.", rung.note)))


def _memory_lines(answer: Answer) -> tuple[str, ...]:
    """What the workload needs and what the engine reserves, and what that holds; nothing where nothing runs."""
    if answer.advice.recommended is None:
        return ()
    return (*balance(answer.result.problem, answer.advice.recommended).words, "")


def _load_lines(answer: Answer) -> tuple[str, ...]:
    """What users feel at the rate asked for, and what it costs; nothing without a rate, or where none is borne."""
    found = answer.traffic
    if not answer.scenario.rate or found is None or not found.replica.bearable:
        return ()
    return (
        f"Load: {found.felt}",
        found.replica.words,
        answer.fleet_words,
        *filter(None, (answer.leaner_words,)),
        "",
    )


def run_plan(arguments: argparse.Namespace) -> str:
    """`plan`: a scenario in, the answer out."""
    answer = plan(scenario_of(arguments.scenario))
    return _json(export.answer_json(answer)) if arguments.json else written_answer(answer)


def run_model(arguments: argparse.Namespace) -> str:
    """`model`: what can be counted of each model."""
    found = [export.model_json(transformer_of(name, hub=arguments.hub)) for name in arguments.models]
    if arguments.json:
        return _json(found)
    return "\n".join(
        f"{one['name']}: {one['total_parameters']:,} parameters, {one['active_parameters']:,} active; KV "
        f"{one['kv_bytes_per_token']:,.0f} bytes per token in bf16; layers: "
        + ", ".join(f"{count} {kind}" for kind, count in one["layers"].items())
        + "".join(f"\n  assumed: {line}" for line in one["assumed"])
        for one in found
    )


def run_gpus(_: argparse.Namespace) -> str:
    """`gpus`: the catalogue's GPUs."""
    return "\n".join(
        f"{gpu.name:<22}{written_bytes(gpu.memory):>11}  {gpu.label}" for gpu in catalog.gpus().values()
    )


def run_models(_: argparse.Namespace) -> str:
    """`models`: the catalogue's models."""
    return "\n".join(catalog.model_files())


def run_link(arguments: argparse.Namespace) -> str:
    """`link`: the query string of a scenario, every field and the schema version."""
    return links.share_url(scenario_of(arguments.scenario), base="")


def run_validate(arguments: argparse.Namespace) -> str:
    """`validate`: predictions beside a file of measurements."""
    try:
        report = validate.validation(arguments.file)
        if arguments.rows:
            validate.write_rows(report, arguments.rows)
    except (OSError, ValueError) as error:
        raise BadInputError(f"{arguments.file}: {error}") from error
    if arguments.json:
        return _json(validate.report_json(report, causes=catalog.causes()))
    worst = [
        f"  {column}, {validate.written_group(group)}"
        for column in report.measured
        if column != validate.VERDICT
        for group in validate.worst_groups(
            validate.comparable(report, column), column, causes=catalog.causes(), most=5
        )
    ]
    written = validate.written_report(report, causes=catalog.causes())
    return "\n".join([written, "", "worst groups", *worst])


def run_log(arguments: argparse.Namespace) -> str:
    """`log`: an engine's start-up log beside the prediction; what it does not say may be given as KEY=VALUE."""
    try:
        with arguments.file.open(encoding="utf-8", errors="replace") as file:
            figures = logs.log_figures(file.read(logs.LONGEST_LOG + 1))
    except OSError as error:
        raise BadInputError(f"{arguments.file}: {error.strerror}") from error
    except logs.LogError as error:
        raise BadInputError(f"{arguments.file}: {error}") from error
    changes, messages = logs.scenario_from(figures)
    given = scenario_of(arguments.scenario) if arguments.scenario else Scenario()
    told = given.model_copy(update=changes)
    said = " ".join(arguments.scenario)
    missing = {
        name for name in ("model", "gpu") if name not in changes and not re.search(rf"\b{name}=", said)
    }
    if "total" in figures.found:
        missing.discard("gpu")
    found: tuple[logs.Pair, ...] = ()
    if not missing:
        decided, whose = logs.laid_out(figures, told)
        layout = logs.layout_decided(decided)
        found = logs.compared(figures, logs.predicted_memory(figures, decided), layout=layout)
        messages = (*messages, f"Predicted for {decided.model} on {decided.gpu}, {layout} ({whose}).")
    else:
        wanted = " and ".join(f"{name}=..." for name in sorted(missing, reverse=True))
        messages = (*messages, f"No prediction: add {wanted} for what the log does not say.")
    if arguments.json:
        return _json(logs.log_json(figures, found) | {"messages": list(messages)})
    return "\n".join([logs.written_log(figures, found), *messages])


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, allow_nan=False)


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m parplan", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=run.__doc__.partition(": ")[2], description=run.__doc__)
        added.set_defaults(run=run)
        return added

    for name, run in (("plan", run_plan), ("link", run_link)):
        added = command(name, run)
        added.add_argument(
            "scenario", nargs="*", metavar="KEY=VALUE", help="keys as in a link; or one whole link"
        )
        added.add_argument("--json", action="store_true")
    added = command("model", run_model)
    added.add_argument("models", nargs="+", metavar="CONFIG.json|ID")
    added.add_argument(
        "--hub", action="store_true", help="ask the Hub for models the catalogue does not know"
    )
    added.add_argument("--json", action="store_true")
    added = command("validate", run_validate)
    added.add_argument("file", type=Path, metavar="FILE.csv")
    added.add_argument("--rows", type=Path, metavar="OUT.csv", help="write every row with its predictions")
    added.add_argument("--json", action="store_true")
    added = command("log", run_log)
    added.add_argument("file", type=Path, metavar="FILE", help="start-up log of vLLM, SGLang or TensorRT-LLM")
    added.add_argument("scenario", nargs="*", metavar="KEY=VALUE", help="what the log does not say")
    added.add_argument("--json", action="store_true")
    command("gpus", run_gpus)
    command("models", run_models)
    arguments, rest = parser.parse_known_args(words)
    if "scenario" in arguments and not any(word.startswith("-") for word in rest):
        arguments.scenario += rest  # KEY=VALUE words may stand on both sides of an option
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 2 when the input makes no sense."""
    arguments = arguments_of(words)
    try:
        print(arguments.run(arguments))
    except (BadInputError, catalog.UnknownNameError, ValidationError) as error:
        print(f"parplan: {error}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal has a × or a ±
    sys.exit(main())
