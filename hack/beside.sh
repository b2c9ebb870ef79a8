#!/bin/bash
# beside.sh FILE FIRST SECOND runs two shell commands side by side. What the first one says goes to FILE and is shown when the second one has
# ended, whose output is seen as it comes. It fails when one of them does, and ends both when it is interrupted.
set -uo pipefail
file=$1 first=$2 second=$3
mkdir -p "$(dirname "$file")"
bash -c "$first" >"$file" 2>&1 &
beside=$!
trap 'kill "$beside" 2>/dev/null; wait; exit 130' INT TERM
bash -c "$second"
status=$?
[ "$status" = 0 ] || echo "(waiting for what runs beside: $first)" >&2
wait "$beside"
other=$?
cat "$file"
[ "$status" = 0 ] && [ "$other" = 0 ]
