"""Writes docs/metrics.md from the catalogue of metrics, so that the page cannot disagree."""

from pathlib import Path

from stratalog.metrics import CounterSpec, HistogramSpec, catalogue

PAGE = Path(__file__).parent.parent / "docs" / "metrics.md"

INTRODUCTION = """\
# Metrics

This page is generated from `src/stratalog/metrics.py` by `make docs`.

Metrics are kept in the Prometheus format inside each broker, and in each process of the pipeline.
Brokers that share a process have registries of their own.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def render() -> str:
    return INTRODUCTION + "".join(_row(spec) for spec in catalogue())


def _row(spec: CounterSpec | HistogramSpec) -> str:
    is_counter = isinstance(spec, CounterSpec)
    name = f"{spec.name}_total" if is_counter else spec.name
    labels = ", ".join(f"`{label}`" for label in spec.labels)
    kind = "counter" if is_counter else "histogram"
    return f"| `{name}` | {kind} | {labels} | {spec.documentation} |\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
