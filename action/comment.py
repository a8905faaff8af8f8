"""
Write the results of a run into one comment of the pull request.

A later run finds the comment by a hidden marker and updates it. A comment that cannot be written
fails nothing: the job's summary has the results too, and says why.
"""

import json
import os
import re
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

MOST = 65_536
"""Characters that a comment may have (github.com: "body is too long")."""
PAGE = 100
"""Comments on a page of GitHub's answers (docs.github.com, "List issue comments")."""
REFUSED = {401, 403, 404}
"""Answers to a token that may not write."""
PATIENCE_S = 60
NO_RIGHT = (
    "this job's token may not write it (a pull request from a fork or of Dependabot, "
    "or a workflow without `pull-requests: write`)"
)


def request(method: str, path: str, data: object = None) -> Any:
    """
    Send a request to GitHub's API and return its answer.

    Args:
        method: HTTP method.
        path: Path below the repository.
        data: Body of the request, as JSON.
    """
    url = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}"
    headers = {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {os.environ['TFPERF_TOKEN']}",
        "Content-Type": "application/json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    body = None if data is None else json.dumps(data).encode()
    sent = Request(url, body, headers, method=method)  # noqa: S310  # the runner names the URL
    with urlopen(sent, timeout=PATIENCE_S) as answer:  # noqa: S310
        return json.load(answer)


def comments(number: int) -> Iterator[dict[str, Any]]:
    """Yield the comments of a pull request, the oldest first."""
    page = 1
    while True:
        found = request("GET", f"issues/{number}/comments?per_page={PAGE}&page={page}")
        yield from found
        if len(found) < PAGE:
            return
        page += 1


def is_own(comment: dict[str, Any], marker: str) -> bool:
    """Return whether a bot wrote a comment with this marker: a person may have copied it."""
    by_bot = (comment.get("user") or {}).get("type") == "Bot"
    return by_bot and (comment.get("body") or "").startswith(marker)


def write_comment(number: int, marker: str, body: str) -> str:
    """
    Write the comment or update the one that is there, and return its address.

    Args:
        number: Number of the pull request.
        marker: First line of the comment.
        body: The whole comment.
    """
    own = next((one for one in comments(number) if is_own(one, marker)), None)
    if own is None:
        written = request("POST", f"issues/{number}/comments", {"body": body})
    else:
        written = request("PATCH", f"issues/comments/{own['id']}", {"body": body})
    return str(written["html_url"])


def comment_text(marker: str) -> str:
    """Return the comment: the report, cut at a line if GitHub would refuse it, and links."""
    report = Path(os.environ["TFPERF_FOLDER"]) / "run.md"
    if report.exists():
        text = report.read_text(encoding="utf-8")
    else:
        status = os.environ["TFPERF_STATUS"]
        text = f"pytest ended with exit status {status} before it wrote results.\n"
    job = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}"
    links = [f"[job]({job.format_map(os.environ)})"]
    if artifact := os.environ["TFPERF_ARTIFACT"]:
        links.append(f"[page and run file]({artifact})")
    head, tail = f"{marker}\n", f"\n{' · '.join(links)}\n"
    room = MOST - len(head) - len(tail)
    if len(text) > room:
        text = text[:room].rpartition("\n")[0] + "\n"
    return head + text + tail


def main() -> None:
    """Write the comment, or say in the job's summary why there is none."""
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    if "pull_request" not in event:
        return
    name = re.sub(r"[^\w.-]", "_", os.environ["TFPERF_NAME"])
    marker = f"<!-- pytest-tfperf {name} -->"
    try:
        number = event["pull_request"]["number"]
        print(f"comment: {write_comment(number, marker, comment_text(marker))}")
    except (OSError, HTTPException, ValueError) as error:  # refused, not reached, cut, no JSON
        refused = isinstance(error, HTTPError) and error.code in REFUSED
        why = NO_RIGHT if refused else f"{os.environ['GITHUB_API_URL']} answered: {error}"
        with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
            summary.write(f"The pull request has no comment with these results: {why}.\n\n")
        print(f"::notice title=tfperf::no comment: {why}")


if __name__ == "__main__":
    main()
