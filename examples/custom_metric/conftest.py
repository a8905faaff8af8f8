"""Two metrics that this project adds: what its model is compared by with others."""

from pytest_tfperf.errors import UnknownMetric


def pytest_tfperf_metrics(registry):
    registry.add(
        "tokens_per_second",
        tokens_per_second,
        unit="1/s",
        better="higher",
        scope="machine",
        meaning="tokens that are learned from per second",
    )
    registry.add(
        "flops_per_token",
        lambda profile: profile.flops / tokens(profile),
        unit="FLOP",
        better="lower",
        scope="program",
        meaning="floating-point operations of a training step per token",
    )


def tokens_per_second(profile):
    """Unknown where the step time is, and for the same reason."""
    return tokens(profile) / profile.step_time


def tokens(profile):
    """Of a step, whatever the size of its batch."""
    import language  # with TensorFlow, which has started when there is a profile

    if profile.workload["batch"] is None:
        raise UnknownMetric("the step has no batches whose tokens could be counted")
    return profile.workload["batch"] * language.LENGTH
