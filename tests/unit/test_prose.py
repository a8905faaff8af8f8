"""The language of docstrings and documents: plain first words, standard terms, short sentences."""

import ast
import re

import pytest
from helpers.paths import ROOT
from helpers.sources import tree

LONGEST_SENTENCE = 30
FEW_PARAMETERS = 3
FIRST_WORDS = re.compile(r"(What|Whether|Which|Where|How|Of|That|Who|When)\b")
BANNED = {
    "referee": "coordinator",
    r"players?": "child process",
    r"seat(s|ed)?": "turn client",
    r"janitor": "cleanup process",
    r"without a word": "by default",
    r"so many": "n",
    r"(?<!there )(?<!There )(?:is|are|was|were) none(?![\w`])": "a verb with not",
    r"the forty": "the 40-test suite",
    r"whoever|nobody says|somebody": "name the caller",
    r"neighbours?(?= (plugin|test))|neighbours\.md": "other plugins",
    r"own metrics?": "custom metrics",
    r"apart from each other|run(s|ning)? apart": "in separate processes",
    r"stand-in": "fake",
    r"dear": "expensive",
    r"room(s)?(?! for)": "package, or space",
}
PYTHON = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("pytest_tfperf", "benchmarks", "docs", "examples", "action")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
PACKAGE = {name: path for name, path in PYTHON.items() if name.startswith("pytest_tfperf/")}
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(
            path
            for folder in ("docs", "examples", "changelog.d", ".github")
            for path in (ROOT / folder).rglob("*.md")
        ),
    ]
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose(text):
    """The running text of a Markdown page: without code, tables' rules, links' targets and comments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return re.sub(r"^(\|[-: |]+\||    .*)$", "", text, flags=re.MULTILINE)


def sentences(text):
    """The sentences of a page; a heading, a list item and a cell of a table end one too."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#>]|\d+\.) )", prose(text)):
        for cell in re.split(r"(?<!\\)\|", block):
            yield from re.split(r"(?<=[.!?:;])\s+", " ".join(cell.split()))


def docstrings():
    """(place, docstring) of every module, class and function."""
    for name, path in PYTHON.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield f"{name}:{getattr(node, 'lineno', 1)}", text


def public_functions():
    """(place, function) of every public function of the package that documents itself."""
    for name, path in PACKAGE.items():
        owners = [
            one for one in ast.walk(tree(path)) if isinstance(one, (ast.Module, ast.ClassDef))
        ]
        functions = [
            node
            for owner in owners
            for node in owner.body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        for node in functions:
            if not node.name.startswith("_") and ast.get_docstring(node):
                yield f"{name}:{node.lineno} {node.name}", node


def is_dataclass(node):
    return isinstance(node, ast.ClassDef) and any(
        "dataclass" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def undocumented_fields(node):
    """The names of a value class's fields that have no string literal under them."""
    following = [*node.body[1:], None]
    return [
        line.target.id
        for line, after in zip(node.body, following, strict=True)
        if isinstance(line, ast.AnnAssign)
        and not line.target.id.startswith("_")
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]


def test_a_page_is_split_into_its_sentences():
    page = "# Title\n\nOne `a.b` here. Two\nlines.\n\n```\ncode code.\n```\n- item\n- other\n\n| a | b c |\n|---|---|\n"
    found = [sentence for sentence in sentences(page) if sentence]
    assert found == ["# Title", "One `a.b` here.", "Two lines.", "- item", "- other", "a", "b c"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_of_documents_are_short(page):
    found = [
        line for line in sentences(page.read_text("utf-8")) if len(line.split()) > LONGEST_SENTENCE
    ]
    assert found == []


def test_docstrings_do_not_begin_with_a_relative_clause():
    assert [(place, text[:60]) for place, text in docstrings() if FIRST_WORDS.match(text)] == []


def test_private_terms_stand_in_the_glossary_only():
    texts = [(path.relative_to(ROOT).as_posix(), prose(path.read_text("utf-8"))) for path in PAGES]
    texts += list(docstrings())
    found = [
        f"{place}: {hit[0]!r}, write {better}"
        for place, text in texts
        if not place.endswith("glossary.md")
        for term, better in BANNED.items()
        for hit in re.finditer(rf"\b(?:{term})\b", text)
    ]
    assert found == []


def test_functions_of_three_parameters_describe_them():
    found = []
    for place, node in public_functions():
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [one.arg for one in arguments if one.arg not in ("self", "cls")]
        if len(named) >= FEW_PARAMETERS and "Args:" not in ast.get_docstring(node):
            found.append(place)
    assert found == []


def test_fields_of_value_classes_are_documented_one_by_one():
    found = [
        f"{name}:{node.lineno} {node.name}: {', '.join(fields)}"
        for name, path in PACKAGE.items()
        for node in ast.walk(tree(path))
        if is_dataclass(node) and not node.name.startswith("_")
        if (fields := undocumented_fields(node))
    ]
    assert found == []


def test_the_readme_is_short_and_so_are_its_sentences():
    """A newcomer reads it in minutes: at most 150 lines, and fewer than 20 words a sentence on average."""
    text = (ROOT / "README.md").read_text("utf-8")
    lengths = [len(line.split()) for line in sentences(text) if line.strip()]
    assert len(text.splitlines()) < 150
    assert sum(lengths) / len(lengths) < 20
    assert max(lengths) <= LONGEST_SENTENCE
