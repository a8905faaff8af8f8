#!/usr/bin/env bash
# Write the results into one comment of the pull request.
set -euo pipefail
here=${BASH_SOURCE[0]%/*}
# shellcheck source-path=SCRIPTDIR
source "$here/common.sh"

split "$TFPERF_PYTHON"
# Isolated: nothing that the tests installed or wrote is imported where the token is known.
exec "${words[@]}" -I -S "$here/comment.py"
