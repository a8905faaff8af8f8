#!/usr/bin/env bash
# Commit the baselines that the run recorded, and push them to the branch.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "${BASH_SOURCE[0]%/*}/common.sh"

bot='github-actions[bot]'
export GIT_AUTHOR_NAME=$bot GIT_COMMITTER_NAME=$bot
export GIT_AUTHOR_EMAIL="41898282+$bot@users.noreply.github.com"
export GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

split "$TFPERF_BASELINES"
for path in "${words[@]}"; do
    # git add fails for a path that nothing matches
    if [[ -n $(git status --porcelain --untracked-files=all -- "$path") ]]; then
        git add --all -- "$path"
    fi
done
if git diff --cached --quiet; then
    summarize "tfperf: the run recorded no baseline. Baselines are looked for at $TFPERF_BASELINES."
    exit
fi
git commit --quiet --no-verify -m "Record performance baselines"

branch=${GITHUB_REF#refs/heads/}
why="tfperf: the recorded baselines could not be pushed to $branch. The job needs \`contents: write\`, and the branch must take its pushes. The artifact has the run file: \`tfperf accept run.json\` records it."
# Another job may have pushed meanwhile.
for _ in 1 2 3; do
    if git push --quiet origin "HEAD:$GITHUB_REF"; then
        summarize "tfperf: the recorded baselines are on $branch."
        exit
    fi
    git pull --quiet --rebase --autostash origin "$GITHUB_REF" && continue
    if git rebase --abort 2>/dev/null; then
        why="tfperf: another job has pushed other values of the same baselines to $branch. Run this job again to record these."
    fi
    break
done
summarize "$why"
fail "$why"
