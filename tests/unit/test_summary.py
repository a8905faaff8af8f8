"""Summary of a profile, as it is printed."""

from dataclasses import replace

from helpers.builders import profile, value

from pytest_tfperf.metric_registry import Metric
from pytest_tfperf.values import PARTS, Source, Step, Value


def test_a_profile_prints_as_a_summary_of_about_ten_lines():
    made = profile(
        "train",
        steps=(Step(name="train 3", period_s=0.01, parts_s=dict.fromkeys(PARTS, 0.001)),) * 12,
        step_time=0.0107,
        input_bound=value("input_bound", 0.19, low=0.1, high=0.25),
        retraces=0,
        peak_memory=2**20,
    )
    custom = Value(number=32.0, unit="1/s", source=Source.OWN)
    made = replace(
        made,
        metrics={**made.metrics, "tokens_per_second": custom},
        own={"tokens_per_second": Metric("tokens_per_second", "1/s", "higher", "machine", "t")},
    )
    assert str(made).splitlines() == [
        "train: 12 traced steps",
        "  step                 10.7 ms",
        "  input              10 %…25 %",
        "  tokens per second       32/s",
        "  retraces                   0",
        "  memory                 1 MiB",
    ]


def test_a_profile_without_a_known_metric_prints_as_its_title():
    assert str(profile()) == "profile: 0 traced steps"
