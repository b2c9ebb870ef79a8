#!/bin/sh
# For `go build -toolexec 'linkonce.sh DIR'`: runs a tool of Go's, and keeps what the linker has made in a directory, by the build ID that it was told. What is
# made of the same again is copied from there.
set -eu
kept=$1
shift
case $1 in
*/link) ;;
*) exec "$@" ;;
esac
id= out= before=
for a; do
	case $a in -buildid=*) id=$(printf %s "${a#-buildid=}" | tr / _) ;; esac
	[ "$before" != -o ] || out=$a
	before=$a
done
[ -n "$id" ] && [ -n "$out" ] || exec "$@"
if [ ! -e "$kept/$id" ]; then
	"$@"
	cp "$out" "$kept/new.$$"
	mv "$kept/new.$$" "$kept/$id"
	exit 0
fi
cp "$kept/$id" "$out"
