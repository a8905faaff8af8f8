"""The files around the package: metadata, wheel, changelog, workflows, the action, and what they say of each other."""

import re
import zipfile
from email import message_from_string

import pytest
from helpers.paths import ROOT

import pytest_tfperf
from pytest_tfperf.plugin.options import TABLE

pytestmark = pytest.mark.full  # needs PyYAML and hatchling

VERSION = pytest_tfperf.__version__
REPOSITORY = "https://github.com/pytest-tfperf/pytest-tfperf"
LINK = re.compile(r"\]\(([^)\s]+)|(?:src|href)=[\"']([^\"']+)")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # Keep a Changelog 1.1
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
YAML = [
    *sorted(GITHUB.rglob("*.yml")),
    *(ROOT / name for name in ("action.yml", "CITATION.cff")),
    *(ROOT / name for name in (".pre-commit-config.yaml", ".pre-commit-hooks.yaml")),
]
PINNED = re.compile(r"(\./\S+|[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40}))")


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def content_of(path):
    import yaml

    return yaml.safe_load(path.read_text(encoding="utf-8"))


def action():
    return content_of(ROOT / "action.yml")


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """The metadata as an installer gets it; hatchling refuses unknown classifiers."""
    import hatchling.build

    folder = tmp_path_factory.mktemp("metadata")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        made = hatchling.build.prepare_metadata_for_build_wheel(str(folder))
    return message_from_string((folder / made / "METADATA").read_text(encoding="utf-8"))


class TestMetadata:
    def test_links_of_the_description_are_absolute_and_lead_to_files_of_this_version(
        self, metadata
    ):
        targets = [one or other for one, other in LINK.findall(metadata.get_payload())]
        assert len(targets) > 20
        assert [target for target in targets if not target.startswith(("https://", "#"))] == []
        files = [target.partition(f"/v{VERSION}/")[2].partition("#")[0] for target in targets]
        assert len(list(filter(None, files))) > 20
        assert [file for file in files if not (ROOT / file).exists()] == []

    def test_the_picture_is_served_as_a_picture(self, metadata):
        raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
        assert f"]({raw}/v{VERSION}/docs/report.png)" in metadata.get_payload()

    def test_visitors_find_the_project(self, metadata):
        urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
        assert urls.keys() == {"Homepage", "Documentation", "Changelog", "Issues", "Source"}
        assert urls["Homepage"] == REPOSITORY
        assert metadata["Version"] == VERSION
        assert "Typing :: Typed" in metadata.get_all("Classifier")
        assert metadata["Author"]


def test_the_wheel_has_the_package_alone(tmp_path, monkeypatch):
    import hatchling.build

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HATCH_BUILD_NO_HOOKS", "true")  # nothing is compiled
    names = zipfile.ZipFile(tmp_path / hatchling.build.build_wheel(str(tmp_path))).namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {"pytest_tfperf", f"pytest_tfperf-{VERSION}.dist-info"}
    assert {"pytest_tfperf/py.typed", "pytest_tfperf/report/html/page.html"} <= set(names)
    assert [name for name in names if name.endswith((".pyc", ".orig"))] == []


class TestChangelog:
    def newest(self):
        """Version, date and kinds of the newest section."""
        section = text_of("CHANGELOG.md").split("\n## ")[1]
        version, date = re.match(rf"\[(.+?)\]\({REPOSITORY}\S+\) - (\S+)\n", section).groups()
        return version, date, re.findall(r"^### (.+)$", section, re.MULTILINE)

    def test_the_newest_section_is_this_version(self):
        version, date, kinds = self.newest()
        assert version == VERSION
        assert re.fullmatch(r"20\d\d-\d\d-\d\d|unreleased", date)
        assert kinds == [kind for kind in KINDS if kind in kinds]

    def test_the_citation_names_the_same_version_and_date(self):
        citation = content_of(ROOT / "CITATION.cff")
        released = citation.get("date-released", "unreleased")
        assert (citation["version"], released) == self.newest()[:2]

    def test_fragments_have_a_known_type(self):
        types = "|".join(kind.lower() for kind in KINDS)
        pattern = re.compile(rf"(\d+|\+[\w-]+)\.({types})(\.\d+)?\.md")
        assert pattern.fullmatch("+csv-units.changed.md")
        assert not pattern.fullmatch("12.feature.md")
        names = {path.name for path in (ROOT / "changelog.d").iterdir()} - {"README.md"}
        assert [name for name in names if not pattern.fullmatch(name)] == []


def test_yaml_can_be_read():
    for path in YAML:
        assert content_of(path), path


def test_workflows_have_few_rights_and_pinned_actions():
    for path in WORKFLOWS:
        workflow = content_of(path)
        assert workflow["permissions"] in ({}, {"contents": "read"}), path
        longest = 180 if path.stem == "nightly" else 60
        for name, job in workflow["jobs"].items():
            assert "uses" in job or job["timeout-minutes"] <= longest, (path, name)
            used = [job.get("uses"), *(step.get("uses") for step in job.get("steps", ()))]
            assert [one for one in used if one and not PINNED.fullmatch(one)] == [], path


def test_the_tests_run_on_every_python():
    versions = content_of(GITHUB / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", text_of("pyproject.toml"))
    assert versions["python"] == named


class TestAction:
    def test_no_expression_is_part_of_a_script(self):
        steps = action()["runs"]["steps"]
        scripts = [step["run"] for step in steps if "run" in step]
        assert len(scripts) > 5
        assert "${{" not in "\n".join(scripts)
        files = re.findall(r"action/\S+\.sh", "\n".join(scripts))
        assert files
        assert {ROOT / file for file in files} | {ROOT / "action" / "common.sh"} == set(
            (ROOT / "action").glob("*.sh")
        )
        assert all(PINNED.fullmatch(step["uses"]) for step in steps if "uses" in step)

    def test_scripts_read_only_variables_that_their_step_sets(self):
        for step in action()["runs"]["steps"]:
            for name in re.findall(r"action/(\S+)\.sh", step.get("run", "")):
                files = [ROOT / "action" / f"{name}.sh", ROOT / "action" / f"{name}.py"]
                read = {
                    variable
                    for path in files
                    if path.exists()
                    for variable in re.findall(r"\bTFPERF_[A-Z_]+", path.read_text("utf-8"))
                }
                assert read == step["env"].keys(), name

    def test_the_page_lists_the_inputs_and_uses_this_version(self):
        page = text_of("docs/how_to/ci.md")
        inputs = action()["inputs"]
        assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == list(inputs)
        import yaml

        first = re.search(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
        workflow = yaml.safe_load(first)
        [step] = [one for one in workflow["jobs"]["tfperf"]["steps"] if "tfperf" in one["uses"]]
        assert step["uses"] == f"{REPOSITORY.removeprefix('https://github.com/')}@v{VERSION}"
        assert step["with"].keys() <= inputs.keys()


def test_pages_install_this_version():
    for page in ("README.md", "docs/how_to/ci.md", "docs/tutorials/pull_request.md"):
        assert set(re.findall(r"pytest-tfperf@v(\S+?)[\s\"]", text_of(page))) == {VERSION}, page


def test_options_of_other_files_exist():
    flags = {option.flag for option in TABLE.values()}
    pages = ("SKILL.md", ".pre-commit-hooks.yaml", "docs/how_to/ci.md", "action/run.sh")
    for name in pages:
        used = set(re.findall(r"--tfperf-[a-z-]+", text_of(name)))
        assert used, name
        assert used <= flags, name
