import json

from stratalog.checks.report import MAX_FINDINGS, Problem, Promise, Report, Severity

WASTE = Problem(promise=Promise.OBJECTS, text="garbage", severity=Severity.WASTE)
DAMAGE = Problem(promise=Promise.DENSE, text="a hole")


def test_waste_is_not_ok_and_not_damage() -> None:
    report = Report(deep=False, started_ms=0)
    verdicts = [(report.ok, report.damaged)]
    for problem in (WASTE, DAMAGE):
        report.add("somewhere", [problem])
        verdicts.append((report.ok, report.damaged))
    assert verdicts == [(True, False), (False, False), (False, True)]


def test_a_report_is_json() -> None:
    report = Report(deep=True, started_ms=5)
    report.counts["rows"] += 3
    report.add("orders-0", [DAMAGE])
    assert json.loads(json.dumps(report.as_dict())) == {
        "ok": False,
        "damaged": True,
        "deep": True,
        "started_ms": 5,
        "counts": {"rows": 3},
        "findings": [
            {
                "promise": 3,
                "name": "dense",
                "severity": "damage",
                "where": "orders-0",
                "what": "a hole",
            }
        ],
        "left_out": 0,
    }
    assert str(report.findings[0]) == "orders-0: a hole"


def test_findings_are_bounded_and_the_rest_is_counted() -> None:
    report = Report(deep=False, started_ms=0)
    report.add("orders-0", [DAMAGE] * (MAX_FINDINGS + 2))
    assert len(report.findings) == MAX_FINDINGS
    assert report.left_out == 2
