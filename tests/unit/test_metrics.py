"""The catalogue of metrics and its page."""

from tools.make_metrics_page import PAGE, render

from stratalog.metrics import CounterSpec, Metrics, catalogue


def test_the_metrics_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"


def test_names_in_the_catalogue_are_unique_and_have_the_prefix() -> None:
    names = [spec.name for spec in catalogue()]
    assert len(set(names)) == len(names) > 10
    assert all(name.startswith("stratalog_") for name in names)


def test_every_metric_of_the_catalogue_can_be_registered() -> None:
    metrics = Metrics()
    for spec in catalogue():
        if isinstance(spec, CounterSpec):
            metrics.counter(spec)
        else:
            metrics.histogram(spec)
    assert len(list(metrics.registry.collect())) == len(catalogue())
