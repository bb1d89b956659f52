"""`make prices` against stand-ins for the published lists, with made-up figures in their real formats."""

import csv
import io
import shutil
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from parplan import catalog
from parplan.hardware import Instance
from scripts import prices
from scripts.prices import ListError, Offer, gpuhunt_list, in_region, index_lists, listed, price_of, refreshed

VERSION = "20261128-77"
COLUMNS = ["instance_name", "location", "price", "cpu", "memory", "gpu_count", "gpu_name", "gpu_memory", "spot",
           "disk_size", "gpu_vendor", "flags", "cpu_arch", "provider_data"]  # fmt: skip
CALENDAR = '{"is_dws_calendar_mode": true}'
AWS = """# AWS, made up. See ../README.md.

provider: AWS
instances:
  - {name: p5.48xlarge, gpu: h100-sxm, gpus: 8, network: 50 GB/s,
     price: 55.04 USD/h, region: us-east-1, priced: 2026-09-19,
     sources: [karpenter-aws, price-reference], note: '88 USD/h once, price: unknown.'}
  - {name: p5.4xlarge, gpu: h100-sxm, gpus: 1,
     price: 6.88 USD/h, region: us-east-1, priced: 2026-09-19, sources: [karpenter-aws]}
  - {name: g6.xlarge, gpu: l4, gpus: 1,
     price: 0.8048 USD/h, region: us-east-1, priced: 2026-07-20, sources: [karpenter-aws]}
  - {name: p5e.48xlarge, gpu: h200-sxm, gpus: 8, sources: [karpenter-aws], note: Not sold on demand.}
"""
AZURE = """provider: Azure
instances:
  - {name: Standard_ND96isr_H100_v5, gpu: h100-sxm, gpus: 8,
     price: 98.32 USD/h, region: eastus, priced: 2026-06-18, sources: [karpenter-aws]}
"""
GCP = """provider: GCP
instances:
  - {name: a3-highgpu-8g, gpu: h100-sxm, gpus: 8,
     price: 88.49 USD/h, region: us-central1, priced: 2026-08-03, sources: [karpenter-gcp]}
"""
TOGETHER = """provider: Together AI
instances:
  - {name: cluster, gpu: h100-sxm, gpus: 8,
     price: 31.92 USD/h, region: all, priced: 2026-09-19, sources: [price-reference]}
"""
SOURCES = "karpenter-aws:\n  text: made up for this test\n  read: 2026-11-29\n"


def row(
    name: str, location: str, price: float, gpus: int, *, spot: bool = False, data: str = "{}"
) -> list[object]:
    return [name, location, price, 8, 64.0, gpus, "H100", 80.0, spot, "", "nvidia", "", "x86", data]


LISTS = {
    "aws": [
        row("p5.48xlarge", "us-east-1", 44.5, 8),
        row("p5.48xlarge", "us-east-1", 20.0, 8, spot=True),
        row("p5.48xlarge", "eu-north-1", 60.0, 8),
        row("g6.xlarge", "us-east-1", 0.8048, 1),
        row("p5.4xlarge", "us-east-1", 5.5, 2),
        row("p5e.48xlarge", "us-east-1", 70.0, 8),
    ],
    "gcp": [
        row("a3-highgpu-8g", "us-central1-a", 80.25, 8),
        row("a3-highgpu-8g", "us-central1-c", 80.25, 8),
        row("a3-highgpu-8g", "us-central1-a", 50.0, 8, data=CALENDAR),
    ],
}


def zipped(provider: str, rows: list[list[object]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr(f"{provider}.csv", text.getvalue())
    return held.getvalue()


class StandIn(BaseHTTPRequestHandler):
    """The bucket: a version and a zipped CSV file per provider; that of Azure is damaged."""

    def do_GET(self) -> None:
        provider, _, rest = self.path.strip("/").partition("/")
        assert rest in {"version", f"{VERSION}/catalog.zip"}
        body = zipped(provider, LISTS.get(provider, [])) if provider != "azure" else b"no archive"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{VERSION}\n".encode() if rest == "version" else body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), StandIn) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("GPUHUNT_CATALOG_URL", f"http://127.0.0.1:{found.server_port}")
        yield
        found.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "instances").mkdir()
    for name, text in {"aws": AWS, "azure": AZURE, "gcp": GCP, "together": TOGETHER}.items():
        (tmp_path / "instances" / f"{name}.yaml").write_text(text)
    (tmp_path / "sources.yaml").write_text(SOURCES)
    return tmp_path


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.rglob("*.yaml"))}


@pytest.mark.usefixtures("server")
def test_the_difference_is_shown_and_nothing_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(folder)
    assert prices.main(["--catalogs", str(folder)]) == 0
    assert texts(folder) == before
    said = capsys.readouterr().out
    assert "p5.48xlarge: 55.04 -> 44.5 USD/h (-19.1%)" in said
    assert "AWS, list of 2026-11-28: 1 changed, 1 confirmed" in said
    assert "p5.4xlarge: listed with 2 GPUs, not 1" in said
    assert "p5e.48xlarge: no price in the catalogue" in said
    assert "Azure: no answer, not in the list, or under other names; left alone" in said
    assert "Together AI: no answer, not in the list" in said
    assert "price: 44.5 USD/h, region: us-east-1, priced: 2026-11-28," in said
    assert "+++ b/instances/aws.yaml" in said
    assert "3 files differ: nothing was written; add --write" in said


@pytest.mark.usefixtures("server")
def test_written_prices_carry_their_day_and_source(folder: Path) -> None:
    assert prices.main(["--catalogs", str(folder), "--write"]) == 0
    aws, gcp = (
        yaml.safe_load((folder / "instances" / f"{name}.yaml").read_text()) for name in ("aws", "gcp")
    )
    moved, wrong_size, confirmed, unpriced = aws["instances"]
    assert (moved["price"], moved["priced"]) == ("44.5 USD/h", date(2026, 11, 28))
    assert moved["sources"] == [f"gpuhunt-aws-{VERSION}", "karpenter-aws", "price-reference"]
    assert moved["note"] == "88 USD/h once, price: unknown."
    assert (wrong_size["price"], wrong_size["priced"]) == ("6.88 USD/h", date(2026, 9, 19))
    assert (confirmed["price"], confirmed["priced"]) == ("0.8048 USD/h", date(2026, 11, 28))
    assert "price" not in unpriced
    assert gcp["instances"][0]["price"] == "80.25 USD/h"
    assert (folder / "instances" / "together.yaml").read_text() == TOGETHER
    sources = yaml.safe_load((folder / "sources.yaml").read_text())
    assert {f"gpuhunt-aws-{VERSION}", f"gpuhunt-gcp-{VERSION}"} <= set(sources)
    assert sources[f"gpuhunt-aws-{VERSION}"]["read"] == date.today()


@pytest.mark.usefixtures("server")
def test_a_second_time_nothing_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices.main(["--catalogs", str(folder), "--write"])
    before = texts(folder)
    prices.main(["--catalogs", str(folder), "--write"])
    assert "Nothing differs." in capsys.readouterr().out
    assert texts(folder) == before


@pytest.mark.usefixtures("server")
def test_a_newer_list_takes_the_older_ones_place(folder: Path) -> None:
    prices.main(["--catalogs", str(folder), "--write"])
    newer = replace(
        gpuhunt_list("aws", version="20261229-90", items=[]),
        offers=[Offer("p5.48xlarge", 8, "us-east-1", 40.0)],
    )
    text = refreshed((folder / "instances" / "aws.yaml").read_text(), found=newer).text
    first = yaml.safe_load(text)["instances"][0]
    assert first["sources"] == ["gpuhunt-aws-20261229-90", "karpenter-aws", "price-reference"]
    assert (first["price"], first["priced"]) == ("40 USD/h", date(2026, 12, 29))


def test_without_a_network_nothing_is_changed_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")
    before = texts(folder)
    assert prices.main(["--catalogs", str(folder), "--write"]) == 0
    assert texts(folder) == before
    said = capsys.readouterr()
    assert said.out.startswith("No price list can be had")
    assert said.err == ""


@pytest.mark.usefixtures("server")
def test_the_real_catalogue_still_loads_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices of the stand-in are made up, so this happens to a copy."""
    copy = tmp_path / "catalogs"
    shutil.copytree(catalog.ROOT, copy, ignore=shutil.ignore_patterns("models", "measurements"))
    prices.main(["--catalogs", str(copy), "--write"])
    monkeypatch.setattr(catalog, "ROOT", copy)
    catalog.sources.cache_clear()
    catalog.instances.cache_clear()
    try:
        after = catalog.instances()
    finally:
        monkeypatch.undo()
        catalog.sources.cache_clear()
        catalog.instances.cache_clear()
    moved = {new.name: new for new, old in zip(after, catalog.instances(), strict=True) if new != old}
    assert {name: machine.price for name, machine in moved.items()} == {
        "p5.48xlarge": 44.5,
        "g6.xlarge": 0.8048,
        "a3-highgpu-8g": 80.25,
    }
    assert all(machine.priced == date(2026, 11, 28) for machine in moved.values())
    assert all(machine.sources[0].text.startswith("gpuhunt") for machine in moved.values())


@pytest.mark.parametrize(
    ("location", "region", "inside"),
    [
        ("us-east-1", "us-east-1", True),
        ("us-east-1", "us-east", False),
        ("us-east1-b", "us-east1", True),
        ("us-east10-b", "us-east1", False),
        ("anywhere", "all", True),
    ],
)
def test_regions_and_zones(location: str, region: str, inside: bool) -> None:  # noqa: FBT001
    assert in_region(location, region) == inside


def test_several_prices_are_no_price() -> None:
    offers = [Offer("m", 8, "a", 10.0), Offer("m", 8, "b", 12.0)]
    assert price_of({"name": "m", "gpus": 8, "region": "all"}, offers=offers) == "2 prices, 10 to 12 USD/h"
    assert price_of({"name": "m", "gpus": 8, "region": "b"}, offers=offers) == 12.0
    assert price_of({"name": "m", "gpus": 8, "region": "c"}, offers=offers) == "not listed on demand in c"
    assert price_of({"name": "n", "gpus": 8, "region": "b"}, offers=offers) == "not listed on demand"


def test_every_entry_of_the_catalogue_can_be_rewritten() -> None:
    """The real files, with every price ten percent up."""
    for path in sorted((catalog.ROOT / "instances").glob("*.yaml")):
        rows: list[dict[str, object]] = yaml.safe_load(path.read_text())["instances"]
        offers = [
            Offer(
                str(r["name"]),
                int(str(r["gpus"])),
                str(r["region"]),
                round(float(str(r["price"]).split()[0]) * 1.1, 4),
            )
            for r in rows
            if "price" in r
        ]
        found = replace(gpuhunt_list("x", version="20261128-1", items=[]), offers=offers)
        result = refreshed(path.read_text(), found=found)
        assert len(result.changes) == len(offers)
        for machine in yaml.safe_load(result.text)["instances"]:
            Instance.model_validate(
                {"provider": "x"} | machine | {"sources": [{"text": "made up", "read": "2026-11-29"}]}
            )


# --- Lists on this machine

HEADER = (
    "date,collected_at,source,provider,segment,pricing,gpu_model,sku,region,geo,gpu_count,usd_per_hour,"
    "usd_per_gpu_hour,sample_size"
)
"""As the GPU Price Index writes it."""
DAY = "2026-12-01,2026-12-01T12:33:53+00:00"
INDEX = f"""{HEADER}
{DAY},aws,AWS,hyperscaler,on_demand,H100,p5.48xlarge,us-east-1,NA,8,50.0,6.25,1
{DAY},aws,AWS,hyperscaler,on_demand,H100,p5.48xlarge,sa-east-1,LATAM,8,90.0,11.25,1
{DAY},azure,Microsoft Azure,hyperscaler,spot,H100,Standard_ND96isr_H100_v5,eastus,NA,8,20.0,2.5,1
{DAY},azure,Microsoft Azure,hyperscaler,on_demand,H100,Standard_ND96isr_H100_v5,eastus,NA,8,98.32004,12.29,1
{DAY},gcp,Google Cloud,hyperscaler,on_demand,H100,a3-highgpu-8g,us-central1,NA,8,80.0,10.0,1
{DAY},lambda,Lambda,neocloud,on_demand,H100,gpu_8x_h100_sxm_80gb,global,Global,8,30.0,3.75,1
{DAY},lambda,Lambda,neocloud,on_demand,H100,gpu_1x_h100_sxm_80gb,global,Global,1,4.0,4.0,1
{DAY},oracle,Oracle Cloud,hyperscaler,on_demand,H100,BM.GPU.H100.8,global,Global,1,9.0,9.0,1
{DAY},runpod,RunPod Secure Cloud,neocloud,on_demand,B300,NVIDIA B300 SXM6 AC,global,Global,1,9.0,9.0,1
{DAY},runpod,RunPod Secure Cloud,neocloud,on_demand,B300,NVIDIA B300 SXM6 AC MIG 1g.34gb,global,Global,1,0.5,0.5,1
{DAY},runpod,RunPod Community Cloud,marketplace,on_demand,B300,NVIDIA B300 SXM6 AC,global,Global,1,7.0,7.0,1
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The GPU Price Index of two days."""
    days = tmp_path / "index" / "data" / "observations" / "2026"
    days.mkdir(parents=True)
    (days / "2026-11-30.csv").write_text(
        INDEX.replace("2026-12-01", "2026-11-30").replace(",50.0,", ",49.0,")
    )
    (days / "2026-12-01.csv").write_text(INDEX)
    return tmp_path / "index"


def test_the_newest_day_of_a_clone_is_taken_over(
    folder: Path, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prices.main(["--catalogs", str(folder), "--from", str(clone), "--write"])
    said = capsys.readouterr().out
    assert "AWS, list of 2026-12-01: 1 changed, 0 confirmed" in said
    assert "p5.48xlarge: 55.04 -> 50 USD/h" in said
    assert "Azure, list of 2026-12-01: 0 changed, 1 confirmed" in said, "the list prints four decimals"
    first = yaml.safe_load((folder / "instances" / "aws.yaml").read_text())["instances"][0]
    assert (first["price"], first["priced"]) == ("50 USD/h", date(2026, 12, 1))
    assert first["sources"][0] == "gpu-price-index-20261201"
    azure = yaml.safe_load((folder / "instances" / "azure.yaml").read_text())["instances"][0]
    assert (azure["price"], azure["priced"]) == ("98.32 USD/h", date(2026, 12, 1))
    assert list(yaml.safe_load((folder / "sources.yaml").read_text())) == [
        "karpenter-aws",
        "gpu-price-index-20261201",
    ]
    prices.main(["--catalogs", str(folder), "--from", str(clone), "--write"])
    assert "Nothing differs." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("provider", "row", "price"),
    [
        ("Lambda", {"name": "gpu_8x_h100_sxm5", "gpu": "h100-sxm", "gpus": 8, "region": "all"}, 30.0),
        ("Lambda", {"name": "gpu_1x_h100_sxm5", "gpu": "h100-sxm", "gpus": 1, "region": "all"}, 4.0),
        ("OCI", {"name": "BM.GPU.H100.8", "gpu": "h100-sxm", "gpus": 8, "region": "all"}, 72.0),
        ("RunPod", {"name": "pod-1x-b300-sxm", "gpu": "b300-sxm", "gpus": 1, "region": "all"}, 9.0),
        ("AWS", {"name": "p5.48xlarge", "gpu": "h100-sxm", "gpus": 8, "region": "us-east-1"}, 50.0),
        (
            "AWS",
            {"name": "p5.x", "gpu": "h100-sxm", "gpus": 8, "region": "us-east-1"},
            "not listed on demand",
        ),
    ],
)
def test_machines_under_other_names_are_told_by_gpu_and_size(
    clone: Path, provider: str, row: dict[str, object], price: float | str
) -> None:
    offers = listed(clone)[provider].offers
    assert price_of(row, offers=offers) == price


def test_a_list_older_than_a_price_leaves_it_alone() -> None:
    older = gpuhunt_list("aws", version="20260918-1", items=[])
    result = refreshed(AWS, found=replace(older, offers=[Offer("p5.48xlarge", 8, "us-east-1", 1.0)]))
    assert result.text == AWS
    assert "p5.48xlarge: the price is newer, of 2026-09-19" in result.kept


def test_a_copy_of_the_published_list_needs_no_network(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GPUHUNT_CATALOG_URL", "http://127.0.0.1:9")
    copy = tmp_path / "bucket" / "aws"
    (copy / VERSION).mkdir(parents=True)
    (copy / "version").write_text(VERSION)
    (copy / VERSION / "catalog.zip").write_bytes(zipped("aws", LISTS["aws"]))
    prices.main(["--catalogs", str(folder), "--from", str(copy.parent)])
    assert "AWS, list of 2026-11-28: 1 changed, 1 confirmed" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", INDEX.replace("2026-12-01,", "soon,"), HEADER])
def test_what_is_no_list_is_refused(folder: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(ListError):
        index_lists(path)
    before = texts(folder)
    assert prices.main(["--catalogs", str(folder), "--from", str(path), "--write"]) == 0
    assert prices.main(["--catalogs", str(folder), "--from", str(tmp_path / "nowhere"), "--write"]) == 0
    assert texts(folder) == before
