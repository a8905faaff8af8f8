# shellcheck shell=bash
# Functions of the action's steps.

# Escape a text as the message of a workflow command (actions/toolkit, command.ts, escapeData).
escaped() {
    local text=${1//%/%25}
    text=${text//$'\r'/%0D}
    printf '%s' "${text//$'\n'/%0A}"
}

# End the job with a message.
fail() {
    echo "::error title=tfperf::$(escaped "$1")"
    exit 1
}

# Add a paragraph to the job's summary.
summarize() {
    printf '%s\n\n' "$1" >>"$GITHUB_STEP_SUMMARY"
}

# Split a text into `words`, with quotes as in a shell. Nothing in it is expanded or run.
split() {
    words=()
    [[ $1 =~ [^[:space:]] ]] || return 0
    local file
    file=$(mktemp)
    printf '%s\n' "$1" | xargs printf '%s\0' >"$file" || fail "quotes do not match in: $1"
    while IFS= read -r -d '' word; do
        words+=("$word")
    done <"$file"
    rm -f "$file"
}
