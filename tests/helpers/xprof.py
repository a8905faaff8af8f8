"""XProf's columns of its step table, and the differences from ours that docs/explanation/xprof.md has a reason for."""

import re

from helpers.paths import ROOT

COLUMNS = {
    "compile": "compileTimeMs",
    "collective": "deviceCollectivesTimeMs",
    "device_compute": "deviceComputeTimeMs",
    "device_to_device": "deviceToDeviceTimeMs",
    "host_compute": "hostComputeTimeMs",
    "input": "infeedTimeMs",
    "kernel_launch": "kernelLaunchTimeMs",
    "other": "otherTimeMs",
    "output": "outfeedTimeMs",
    "period": "stepTimeMs",
}


def reasons(live):
    """(trace patterns, columns) of each row of the page: of traces captured in a run, or of stored ones."""
    rows = re.findall(
        r"^\| (`.+?`) \| (.+?) \| .+ \|$",
        (ROOT / "docs" / "explanation" / "xprof.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    return [
        (tuple(re.findall("`(.+?)`", patterns)), frozenset(columns.split(", ")))
        for patterns, columns in rows
        if patterns.startswith("`live_") == live
    ]
