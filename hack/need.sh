#!/bin/sh
# need.sh PACKAGE...  makes sure that Debian packages are there: installs what is missing when it runs as root on a
# machine with apt, and else says which command would.
set -eu
missing=
for p in "$@"; do
	dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "missing Debian packages:$missing" >&2
	echo "install them with: apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
echo "installing Debian packages:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Services that a package would start are of no use here, and would hold ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	trap 'rm -f "$log" "$policy"' EXIT
fi
if ! { apt-get install -y --no-install-recommends $missing || { apt-get update && apt-get install -y --no-install-recommends $missing; }; } >"$log" 2>&1 </dev/null; then
	tail -20 "$log" >&2
	echo "apt-get could not install:$missing" >&2
	exit 1
fi
