#!/usr/bin/env bash
# Run pytest and write its results. The last step of the action ends with the exit status.
#
# Outputs: `status`, `folder` with the results, and `run-file` if pytest wrote them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
source "${BASH_SOURCE[0]%/*}/common.sh"

folder=$RUNNER_TEMP/tfperf/$TFPERF_NAME
rm -rf "$folder"
mkdir -p "$folder"

split "$TFPERF_PYTHON"
command=("${words[@]}" -m pytest)
case $TFPERF_MODE in
record) command+=(--tfperf-update) ;;
compare) command+=("--tfperf-against=$TFPERF_BASE") ;;
esac
if [[ -n $TFPERF_TOLERANCE ]]; then
    command+=(-o "tfperf_max_regression=$TFPERF_TOLERANCE")
fi
for ending in json md html; do
    command+=("--tfperf-report=$folder/run.$ending")
done
split "$TFPERF_OPTIONS"
command+=(${words[@]+"${words[@]}"}) # an empty array is unset in bash 3.2, which macOS has
split "$TFPERF_TESTS"
command+=(${words[@]+"${words[@]}"})

status=0
"${command[@]}" || status=$?

printf 'status=%s\nfolder=%s\n' "$status" "$folder" >>"$GITHUB_OUTPUT"
if [[ -f $folder/run.json ]]; then
    printf 'run-file=%s\n' "$folder/run.json" >>"$GITHUB_OUTPUT"
else
    summarize "tfperf: pytest ended with exit status $status before it wrote results. The log of the job says why."
fi
