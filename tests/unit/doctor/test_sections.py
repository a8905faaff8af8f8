"""The sections that `tfperf doctor` prints."""

import json
from dataclasses import replace

import pytest
from helpers.screen import screen, text_of

from pytest_tfperf.cli.doctor import section_view
from pytest_tfperf.doctor.checks import SelfCheck
from pytest_tfperf.doctor.sections import (
    conditions_section,
    fitness_section,
    machine_section,
    noise_section,
    profiler_section,
    resolution_section,
    sections_json,
    stored_section,
)
from pytest_tfperf.doctor.stored_times import stored_changes
from pytest_tfperf.doctor.turns import SameCodeTurns
from pytest_tfperf.stats.detectable_change import needed_tolerance, noise_of, resolution
from pytest_tfperf.stats.process_spread import PINNED_PROCESS_SD, UNPINNED_PROCESS_SD
from pytest_tfperf.stats.sequential import StoppingRule
from pytest_tfperf.values import Unknown

ENVIRONMENT = {
    "platform": "cpu, TensorFlow 2.21, oneDNN on",
    "machine": {"accelerators": "none", "cpu": "AMD EPYC", "cores": 2},
    "setting": {"tensorflow": "2.21.0", "xla_flags": "", "python": "3.11.7"},
}
GOOD = SelfCheck(framework="TensorFlow", name="markers", passed=True, found="5 of 5")
BAD = replace(GOOD, name="device plane", passed=False, found="none", advice="ask the administrator")


def lines_of(section):
    return text_of(section_view(section, screen()), screen())


QUIET = stored_changes([{"step_time": 0.01, "step_cpu_time": 0.01, "other_load": 0.0}] * 2, 0.0, 2)


def turns(pinned, step_s=0.005, off=1.0, n=64, stored=QUIET):
    """64 pairs of turns that are alternately 1 % more and less."""
    process_sd = PINNED_PROCESS_SD if pinned else UNPINNED_PROCESS_SD
    noise = noise_of(
        [(step_s * off * (1.01 if i % 2 else 1 / 1.01), step_s, True) for i in range(n)],
        n * 0.05,
        process_sd,
    )
    rules = [
        StoppingRule(tolerance=tolerance, n_tests=1, process_sd=process_sd, n_pairs=4)
        for tolerance in (0.01, 0.05)
    ]
    return SameCodeTurns(
        pinned=pinned,
        noise=noise,
        resolutions={rule.tolerance: resolution(noise, rule, 30) for rule in rules},
        needed=needed_tolerance(noise, rules[0], 30),
        stored=stored,
    )


def test_the_machine_class_platform_and_setting():
    assert lines_of(machine_section(ENVIRONMENT)) == [
        "machine class (times are comparable within it)",
        "  accelerators  none",
        "  cpu           AMD EPYC",
        "  cores         2",
        "  platform      cpu, TensorFlow 2.21, oneDNN on",
        "  setting       tensorflow 2.21.0, python 3.11.7",
    ]


def test_a_second_framework_has_a_remark():
    section = machine_section(ENVIRONMENT, {"JAX": "0.10.2: its profiler is checked too"})
    assert lines_of(section)[-1] == "  JAX           0.10.2: its profiler is checked too"
    assert section.data["others"] == {"JAX": "0.10.2: its profiler is checked too"}


def test_checks_of_several_frameworks_have_their_names():
    section = profiler_section([GOOD, replace(GOOD, framework="JAX")])
    assert lines_of(section)[1:] == [
        "  TensorFlow: markers  ok: 5 of 5",
        "  JAX: markers         ok: 5 of 5",
    ]


def test_a_failed_check_is_said_once_with_what_to_do():
    section = profiler_section([GOOD, BAD, replace(BAD, name="other")])
    assert section.failed
    assert lines_of(section) == [
        "profiler",
        "  markers       ok: 5 of 5",
        "  device plane  FAILED: none",
        "  other         FAILED: none",
        "  try: ask the administrator",
    ]


def test_good_checks_are_no_failure():
    assert not profiler_section([GOOD]).failed


def conditions(**fields):
    quiet = {"load": None, "remarks": (), "watched_s": 2.0, "can_stop": True, "can_pin": True}
    return conditions_section(**{**quiet, **fields})


def test_the_conditions_of_a_quiet_machine():
    section = conditions(load=(0.5, 2))
    assert lines_of(section) == [
        "conditions",
        "  load average      0.50 on 2 cores, before",
        "  interference      not detected in 2 s (load, clocks, heat, quotas)",
        "  pause and resume  ok: SIGSTOP and SIGCONT work",
        "  CPU affinity      ok: processes keep to their cores",
    ]
    assert not section.failed


def test_what_is_noticed_stands_for_itself_and_only_stopping_is_needed():
    section = conditions(remarks=["other processes used 40%"], can_pin=False)
    text = "\n".join(lines_of(section))
    assert "load average" not in text
    assert "interference      other processes used 40%" in text
    assert "CPU affinity      not possible: one core" in text
    assert "two cores or more" in section.advice[0]
    assert not section.failed
    section = conditions(can_stop=False)
    assert section.failed
    assert "needs SIGSTOP" in section.advice[0]


def test_the_noise_of_turns_side_by_side():
    section = noise_section([turns(True), turns(False)], 8)
    cells = {name: row for name, *row in section.rows}
    assert section.titles == ["two processes of the same code", "pinned", "any core"]
    assert lines_of(section)[0] == "present noise, in 8 s of turns (--seconds)"
    assert lines_of(section)[1].split("  ")[0] == "two processes of the same code"
    assert cells["step"] == ["5 ms", "5 ms"]
    assert cells["pairs of turns"] == ["64", "64"]
    assert cells["a pair of turns takes"] == ["50 ms", "50 ms"]
    assert cells["spread of single pairs"] == ["1 %", "1 %"]
    assert cells["ratio, should be 1"] == ["1.000", "1.000"]
    assert cells["over time"] == ["5, 5, 5, 5 ms"] * 2
    assert not section.failed
    assert not section.advice


def test_processes_that_differ_too_much_are_advised_upon():
    section = noise_section([turns(True, off=1.05)], 8)
    assert not section.failed  # it is noise, and may be chance
    assert section.advice[0].startswith(
        "pinned: two processes of the same code differ by more than decisions allow for"
    )


def test_turns_that_could_not_be_taken_are_a_failure_with_their_reason():
    section = noise_section(
        [
            SameCodeTurns(pinned=True, noise=Unknown("the first process ended with SIGKILL")),
            turns(False),
        ],
        8,
    )
    assert section.failed
    assert section.lines[-1] == "pinned: the first process ended with SIGKILL"
    assert section.data["turns"][0] == {
        "pinned": True,
        "why": "the first process ended with SIGKILL",
        "remarks": [],
        "noise": None,
    }


def test_what_the_machine_did_besides_is_told_of_the_turns_that_it_fell_in():
    section = noise_section(
        [turns(True), replace(turns(False), remarks=("other processes used 40%",))], 8
    )
    assert section.lines[-1] == "any core: other processes used 40%"
    assert [kind["remarks"] for kind in section.data["turns"]] == [[], ["other processes used 40%"]]
    assert not section.failed


def test_a_step_that_gets_slower_and_wild_pairs_are_advised_upon():
    rising = turns(True)
    rising = replace(rising, noise=replace(rising.noise, trend=0.12, pair_sd=0.06))
    first, second = noise_section([rising], 8).advice
    assert first.startswith("pinned: the step rose by 12 % over these turns")
    assert second.startswith("individual measurements vary widely")


def test_what_can_be_resolved():
    section = resolution_section([turns(True), turns(False)])
    assert section.title == "smallest slow-down detectable in 30 s of turns (90 % power)"
    assert [name for name, *_ in section.rows] == [
        "at tolerance 1 %",
        "at tolerance 5 %",
        "tolerance that the same code passes",
    ]
    _, pinned, unpinned = section.rows[0]
    assert unpinned.endswith("(effective: 3.94 %)")
    # unpinned: any less is raised, to 2.861 standard errors of 2.7 % ÷ √4
    assert "effective" not in pinned
    assert section.data["budget_s"] == 30
    assert [found["tolerance"] for found in section.data["turns"][0]["resolutions"]] == [0.01, 0.05]
    assert not section.advice
    assert not section.failed


def test_a_machine_that_cannot_hold_the_default_tolerance_says_which_it_can():
    section = resolution_section([turns(False)])
    assert len(section.advice) == 1
    assert section.advice[0].startswith(
        "max_regression='5.75 %' or more"
    )  # e to 0.027 × (2.450 + 1.282), and a little for turns


@pytest.mark.parametrize(
    "kinds", [[turns(True, n=3)], [SameCodeTurns(pinned=False, noise=Unknown("died"))]]
)
def test_too_few_turns_resolve_nothing(kinds):
    section = resolution_section(kinds)
    assert section.rows[-1][-1] == "unknown"
    assert "--seconds" in section.advice[0]


def test_one_object_for_machines():
    sections = [
        machine_section(ENVIRONMENT),
        profiler_section([GOOD, BAD]),
        noise_section([turns(True)], 8),
        resolution_section([turns(True)]),
    ]
    data = json.loads(json.dumps(sections_json(sections), allow_nan=False))
    assert (data["format"], data["good"]) == (2, False)
    assert data["machine"]["machine"]["cores"] == 2
    assert [
        part["failed"]
        for part in (data["machine"], data["profiler"], data["noise"], data["resolution"])
    ] == [
        False,
        True,
        False,
        False,
    ]
    assert data["profiler"]["advice"] == ["ask the administrator"]
    assert data["noise"]["turns"][0]["noise"]["n"] == 64
    assert sections_json(sections[:1])["good"]


def fit(*kinds, profiler=GOOD):
    section = fitness_section(profiler_section([profiler]), kinds)
    assert not section.failed
    assert section.data["sentence"] == section.title
    return section


def test_a_good_machine_is_fit_for_all_and_says_what_it_resolves():
    section = fit(turns(True), turns(False))
    change = section.data["minimum_detectable_change"]
    assert section.title == (
        "This machine is fit for limits, baselines and --tfperf-against: a test with 30 s of turns "
        f"finds slow-downs from {change * 100:.3g} % on (pinned, 90 % power), "
        "and five stored runs from 9.53 % on."
    )
    assert 0.01 < change < 0.05


def test_a_busy_machine_is_fit_for_times_in_turns_and_not_for_stored_ones():
    run = {"step_time": 0.02, "step_cpu_time": 0.01, "other_load": 0.4}
    busy = stored_changes([run, {**run, "step_cpu_time": 0.0105}], 0.03, 2)
    clock, processor = (change.smallest for change in busy)
    assert 0.1 < processor < clock
    section = fit(turns(True, stored=busy))
    assert "limits, structural baselines and --tfperf-against: " in section.title
    assert section.title.endswith(f"and five stored runs from {processor * 100:.3g} % on.")
    table = stored_section(busy)
    assert [name for name, *_ in table.rows] == ["the clock", "processor time"]
    assert "only where max_regression is set" in table.advice[0]
    assert not stored_section(QUIET).advice
    assert stored_section([]).lines == ["unknown: the processes have no step time"]


DIED = SameCodeTurns(pinned=False, noise=Unknown("the first process ended with SIGKILL"))


def test_a_machine_that_is_not_fit_for_all_says_for_what():
    cases = [
        ([turns(True)], BAD, "is not fit to profile: a check of the profiler failed."),
        ([], GOOD, "structural baselines, not for --tfperf-against, which must pause processes."),
        ([DIED], GOOD, "not for --tfperf-against: the first process ended with SIGKILL."),
        ([turns(True, off=1.2)], GOOD, "not for step times: processes of the same code differ"),
        ([turns(False)], GOOD, "and for step times in turns at max_regression='5.75 %' or more."),
        ([turns(True, n=3)], GOOD, "more turns (--seconds) would show how well"),
    ]
    for kinds, profiler, said in cases:
        section = fit(*kinds, profiler=profiler)
        assert section.title.startswith("This machine is "), said
        assert said in section.title, said
        assert section.data["minimum_detectable_change"] is None, said
        assert section.title.count(". ") == 0, said
