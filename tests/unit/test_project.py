"""The files around the package: metadata, wheel, changelog, workflows, the action, templates, and what they say of each other."""

import importlib
import json
import re
import sys
import zipfile
from email import message_from_string

import hatchling.build
import pytest
import yaml
from helpers.github_job import EXPRESSION, action
from helpers.paths import ROOT

import pytest_tfperf
from pytest_tfperf.plugin.options import TABLE

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")  # pytest's

VERSION = pytest_tfperf.__version__
REPOSITORY = "https://github.com/pytest-tfperf/pytest-tfperf"
LINK = re.compile(r"\]\(([^)\s]+)|(?:src|href)=[\"']([^\"']+)")
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")  # Keep a Changelog 1.1
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = [
    path for path in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"
]
YAML = [
    *sorted(GITHUB.rglob("*.yml")),
    *(ROOT / name for name in ("action.yml", "CITATION.cff")),
    *(ROOT / name for name in (".pre-commit-config.yaml", ".pre-commit-hooks.yaml")),
]
PINNED = re.compile(r"(\./\S+|[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40}))")


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def content_of(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project():
    return tomllib.loads(text_of("pyproject.toml"))


@pytest.fixture(scope="module")
def metadata(tmp_path_factory):
    """The metadata as an installer gets it; hatchling refuses unknown classifiers."""
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
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HATCH_BUILD_NO_HOOKS", "true")  # nothing is compiled
    names = zipfile.ZipFile(tmp_path / hatchling.build.build_wheel(str(tmp_path))).namelist()
    folders = {name.split("/")[0] for name in names}
    assert folders == {"pytest_tfperf", f"pytest_tfperf-{VERSION}.dist-info"}
    assert {"pytest_tfperf/py.typed", "pytest_tfperf/report/html/page.html"} <= set(names)
    assert [name for name in names if name.endswith((".pyc", ".orig"))] == []


def test_dependencies_have_their_reason_beside_them():
    lines = re.findall(r'^    "[\w-]+[<>=~]=.*', text_of("pyproject.toml"), re.MULTILINE)
    assert len(lines) > 20
    alone = [line for line in lines if "#" not in line]
    assert [line for line in alone if not line.startswith('    "tensorflow')] == []


class TestChangelog:
    def newest(self):
        """Version, date and kinds of the newest section."""
        section = text_of("CHANGELOG.md").split("\n## ")[1]
        version, date = re.match(rf"\[(.+?)\]\({REPOSITORY}\S+\) - (\S+)\n", section).groups()
        return version, date, re.findall(r"^### (.+)$", section, re.MULTILINE)

    def test_the_newest_section_is_this_version(self):
        version, date, kinds = self.newest()
        assert version == VERSION
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date)
        assert kinds == [kind for kind in KINDS if kind in kinds]

    def test_the_citation_names_the_same_version_and_date(self):
        citation = content_of(ROOT / "CITATION.cff")
        assert (citation["version"], citation["date-released"]) == self.newest()[:2]

    def test_towncrier_writes_the_kinds_below_the_mark(self):
        settings = project()["tool"]["towncrier"]
        assert [kind["name"] for kind in settings["type"]] == list(KINDS)
        assert [kind["directory"] for kind in settings["type"]] == [one.lower() for one in KINDS]
        head, _, _ = text_of(settings["filename"]).partition(settings["start_string"])
        assert head.startswith("# Changelog\n")
        assert "\n## " not in head

    def test_fragments_have_a_known_type(self):
        types = "|".join(kind.lower() for kind in KINDS)
        pattern = re.compile(rf"(\d+|\+[\w-]+)\.({types})(\.\d+)?\.md")
        assert pattern.fullmatch("+csv-units.changed.md")
        assert not pattern.fullmatch("12.feature.md")
        names = {path.name for path in (ROOT / "changelog.d").iterdir()} - {"README.md"}
        assert [name for name in names if not pattern.fullmatch(name)] == []


@pytest.mark.parametrize("path", YAML, ids=name_of)
def test_yaml_can_be_read(path):
    assert content_of(path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=name_of)
def test_workflows_have_few_rights_and_pinned_actions(path):
    workflow = content_of(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        assert "uses" in job or job["timeout-minutes"] <= 60, name
        used = [job.get("uses"), *(step.get("uses") for step in job.get("steps", ()))]
        assert [one for one in used if one and not PINNED.fullmatch(one)] == []


def test_the_tests_run_on_every_python():
    versions = content_of(GITHUB / "workflows" / "tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    named = re.findall(r"Python :: (3\.\d+)", text_of("pyproject.toml"))
    assert versions["python"] == named


class TestAction:
    def test_no_expression_is_part_of_a_script(self):
        steps = action()["runs"]["steps"]
        scripts = [step["run"] for step in steps if "run" in step]
        assert len(scripts) > 5
        assert not EXPRESSION.search("\n".join(scripts))
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
        page = text_of("docs/how_to/github_action.md")
        inputs = action()["inputs"]
        assert re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE) == list(inputs)
        workflow = yaml.safe_load(re.search(r"```yaml\n(.*?)```", page, re.DOTALL)[1])
        [step] = [one for one in workflow["jobs"]["tfperf"]["steps"] if "tfperf" in one["uses"]]
        assert step["uses"] == f"{REPOSITORY.removeprefix('https://github.com/')}@v{VERSION}"
        assert step["with"].keys() <= inputs.keys()


@pytest.mark.parametrize("path", FORMS, ids=name_of)
def test_issue_forms_are_as_github_reads_them(path):
    form = content_of(path)
    assert {"name", "description", "body"} <= form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in {"textarea", "input", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]
        assert field["type"] != "dropdown" or len(set(field["attributes"]["options"])) > 1
    assert any(field.get("validations", {}).get("required") for field in form["body"])


@pytest.mark.parametrize("name", ["bug", "wrong_verdict"])
def test_reports_of_wrong_results_ask_for_the_doctor(name):
    form = content_of(GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml")
    [doctor] = [field for field in form["body"] if field["id"] == "doctor"]
    assert "`tfperf doctor`" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"]


def test_the_skill_is_short_and_says_when_it_is_for():
    skill = text_of("SKILL.md")
    _, head, _ = skill.split("---\n", 2)
    assert yaml.safe_load(head).keys() == {"name", "description"}
    assert yaml.safe_load(head)["name"] == "pytest-tfperf"
    assert len(skill.splitlines()) < 60


@pytest.mark.parametrize(
    "name", ["SKILL.md", ".pre-commit-hooks.yaml", "docs/how_to/github_action.md", "action/run.sh"]
)
def test_options_of_other_files_exist(name):
    used = set(re.findall(r"--tfperf-[a-z-]+", text_of(name)))
    assert used
    assert used <= {option.flag for option in TABLE.values()}


def test_the_development_container_is_made_as_contributing_says():
    container = json.loads(text_of(".devcontainer/devcontainer.json"))
    commands = re.sub(r"['\"]", "", container["postCreateCommand"]).split(" && ")
    contributing = re.sub(r"['\"]", "", text_of("CONTRIBUTING.md"))
    assert len(commands) == 3
    assert [command for command in commands if command not in contributing] == []
