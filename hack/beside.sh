#!/bin/bash
# beside.sh DIR NAME COMMAND [NAME COMMAND]...  runs shell commands side by side, and fails when one of them does. The output of the last one is seen as it
# comes; that of the others goes to DIR/beside-NAME.log, and is shown when all have ended, with how long each took on the wall and of the processors. All are
# ended when it is interrupted.
set -uo pipefail
dir=$1
shift
mkdir -p "$dir"

run() { # NAME COMMAND
	local TIMEFORMAT="=== $1: %0R s, of the processors %0U s and the kernel's %0S s"
	time bash -c "$2"
}

names=() pids=() status=0
set -m # each has a process group of its own, which can be ended as a whole
while [ $# -gt 2 ]; do
	run "$1" "$2" >"$dir/beside-$1.log" 2>&1 </dev/null &
	names+=("$1") pids+=("$!")
	shift 2
done
set +m
trap 'for p in "${pids[@]}"; do kill -- "-$p" 2>/dev/null; done; wait; exit 130' INT TERM
(run "$1" "$2") || status=1 # by itself, or the others' times would be in its own
for i in "${!pids[@]}"; do
	wait "${pids[i]}" && continue
	status=1
	echo "=== ${names[i]} failed"
done
for n in "${names[@]}"; do cat "$dir/beside-$n.log"; done
for n in "${names[@]}"; do tail -n 1 "$dir/beside-$n.log"; done
exit "$status"
