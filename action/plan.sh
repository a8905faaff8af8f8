#!/usr/bin/env bash
# Decide how the tests run, and fetch the commit to compare with if the clone lacks it.
#
# Outputs: `mode` is record, compare or alone; `base` is the ref to compare with.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "${BASH_SOURCE[0]%/*}/common.sh"

base=

is_commit() {
    git rev-parse --verify --quiet --end-of-options "$1^{commit}" >/dev/null
}

# Fetch REFSPEC. In a shallow clone DEPTH is added, which would cut the history of any other.
fetch() {
    local options=(--quiet --no-tags)
    if [[ $(git rev-parse --is-shallow-repository) == true ]]; then
        options+=("$2")
    fi
    git fetch "${options[@]}" -- origin "$1"
}

find_named_base() {
    base=$TFPERF_BASE
    if ! is_commit "$base"; then
        fetch "${base#origin/}" --depth=1 ||
            fail "base $base: this clone has no such branch, tag or commit, and its origin has none either."
        base=$(git rev-parse --short=12 FETCH_HEAD)
    fi
}

# The merge base, so that later changes of the base branch do not count as the pull request's.
# It is the first parent of the merge commit that GitHub checks out by default.
find_base_of_pull_request() {
    local branch=origin/$GITHUB_BASE_REF
    if ! git merge-base HEAD "$branch" >/dev/null 2>&1; then
        fetch "+refs/heads/$GITHUB_BASE_REF:refs/remotes/$branch" --unshallow ||
            fail "branch $GITHUB_BASE_REF could not be fetched. Set fetch-depth: 0 for actions/checkout."
    fi
    base=$(git merge-base HEAD "$branch") ||
        fail "HEAD and $branch have no common commit. Name the ref to compare with as base."
    # the shortest name that people know
    if [[ $base == "$(git rev-parse "$branch")" ]]; then
        base=$branch
    else
        base=$(git rev-parse --short=12 "$base")
    fi
}

if [[ $TFPERF_ACCEPT == true && $GITHUB_EVENT_NAME == push &&
    $GITHUB_REF == "refs/heads/$TFPERF_DEFAULT_BRANCH" ]]; then
    mode=record
elif [[ -n $TFPERF_BASE ]]; then
    mode=compare
    find_named_base
elif [[ -n ${GITHUB_BASE_REF:-} ]]; then
    mode=compare
    find_base_of_pull_request
else
    mode=alone
fi
printf 'mode=%s\nbase=%s\n' "$mode" "$base" | tee -a "$GITHUB_OUTPUT"
