"""The flags of TensorFlow that a process of its own gets for autoclustering."""

from pytest_tfperf.turns.own_flags import autoclustering_flags, differing_flags

OURS = "--tf_xla_auto_jit=2 --tf_xla_cpu_global_jit"


def test_flags_of_the_environment_keep_their_values():
    for given, flags in (
        ("", OURS),
        ("--tf_xla_min_cluster_size=2", f"{OURS} --tf_xla_min_cluster_size=2"),
        ("--tf_xla_auto_jit=1", "--tf_xla_cpu_global_jit --tf_xla_auto_jit=1"),
        (
            " --tf_xla_cpu_global_jit=false --tf_xla_auto_jit=2",
            "--tf_xla_cpu_global_jit=false --tf_xla_auto_jit=2",
        ),
        ('--tf_xla_ops_to_cluster="FUSIBLE', f'{OURS} --tf_xla_ops_to_cluster="FUSIBLE'),
    ):
        assert autoclustering_flags(given) == flags, given


def test_flags_may_stand_in_a_file(tmp_path):
    (tmp_path / "flags").write_text("--tf_xla_auto_jit=1\n--tf_xla_min_cluster_size=2\n")
    assert autoclustering_flags(str(tmp_path / "flags")).split() == [
        "--tf_xla_cpu_global_jit",
        "--tf_xla_auto_jit=1",
        "--tf_xla_min_cluster_size=2",
    ]


def test_other_values_of_the_flags_are_said(monkeypatch):
    for flags, notes in (
        (OURS, ()),
        (OURS + "=true --tf_xla_min_cluster_size=2", ()),
        (
            "--tf_xla_cpu_global_jit --tf_xla_auto_jit=1",
            (
                "TF_XLA_FLAGS had --tf_xla_auto_jit=1, which autocluster=True left (--tf_xla_auto_jit=2 is its own)",
            ),
        ),
    ):
        monkeypatch.setenv("TF_XLA_FLAGS", flags)
        assert differing_flags() == notes, flags
