"""Two metrics of this project, by which it compares its model with others."""

from pytest_tfperf import UnknownMetric


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
    """Return tokens a second; unknown if the step time is, for the same reason."""
    return tokens(profile) / profile.step_time


def tokens(profile):
    """Return the number of tokens in a step, for any batch size."""
    import language  # imports TensorFlow, which a profile has started

    if profile.workload["batch"] is None:
        raise UnknownMetric("the step has no batches whose tokens could be counted")
    return profile.workload["batch"] * language.LENGTH
