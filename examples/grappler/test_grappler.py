"""Limits on Grappler's effect: it folds constants, and its debug stripper removes a check."""

import pytest
import steps
import tensorflow as tf


@pytest.fixture(autouse=True)
def same_options():
    """Hold that each test leaves the optimiser options of the process unchanged."""
    before = tf.config.optimizer.get_experimental_options()
    yield
    assert tf.config.optimizer.get_experimental_options() == before


@pytest.fixture
def x():
    return tf.ones((steps.SIZE, steps.SIZE))


@pytest.mark.tfperf(graph_ops=2, min_graph_reduction=0.9)
def test_products_of_a_constant_fold_to_none(tf_profile, x):
    """A constant and a sum remain."""
    tf_profile(steps.products(), [x] * 200)


@pytest.mark.tfperf(min_graph_ops=steps.N_PRODUCTS)
def test_folding_moves_work_to_the_first_step_and_takes_none_from_the_others(tf_profile, x):
    """
    All products are in the graph without constant folding, and the steps are not slower.

    The runtime computes values of constants once, when the function is first called. So folding
    saves graph ops and time of the first step, not time of the later ones.
    """
    with tf_profile.grappler(constant_folding=False):
        unfolded = tf_profile(steps.products(), [x] * 200, name="unfolded")
    folded = tf_profile(
        steps.products(), [x] * 200, name="folded", limits={"min_graph_ops": 0, "max_graph_ops": 2}
    )
    assert unfolded.graph_ops - folded.graph_ops >= steps.N_PRODUCTS
    for profile in (unfolded, folded):
        first, others = profile.first_step_time * 1e3, profile.step_time * 1e3
        print(f"{profile.name}: first step {first:.0f} ms, then {others:.2f} ms")  # noqa: T201, shown by pytest -rP


def test_a_nan_passes_once_the_debug_stripper_has_taken_out_the_check(tf_profile):
    step, nan = steps.checked(), tf.constant(float("nan"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a NaN came in"):
        step(nan)
    with tf_profile.grappler(debug_stripper=True):
        assert tf.math.is_nan(step(nan))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a NaN came in"):
        step(nan)


def checks_in(profile):
    return [row for row in profile.tables["graph"].records() if row["type"] == "CheckNumerics"]


def test_the_profile_names_the_check_and_its_line(tf_profile):
    profile = tf_profile(steps.checked(), [tf.ones(8)] * 200)
    (check,) = checks_in(profile)
    assert check["after"] == 1
    assert check["line"].startswith("steps.py:")
    with tf_profile.grappler(debug_stripper=True):
        stripped = tf_profile(steps.checked(), [tf.ones(8)] * 200, name="stripped")
    assert [check["after"] for check in checks_in(stripped)] == [0]
