#!/bin/bash
# For `go test -exec`: runs a test's program with mounts and a network of its own, beside others that look at the whole host. It sees the host's files, processes
# and cgroups, and the network of a machine that is alone: an address and a default route that lead nowhere (RFC 5737). Its process is the one that was
# started, so that go test can end it.
set -euo pipefail
exec unshare --mount --net --propagation private bash -euc '
	sys=$(mktemp -d)
	mount -t sysfs sysfs "$sys"                     # /sys/class/net is that of the network in which it was mounted
	mount --rbind /sys/fs/cgroup "$sys/fs/cgroup"
	mount --move "$sys" /sys
	rmdir "$sys"
	ip link set lo up
	ip link add uplink type veth peer name beyond
	ip link set uplink addrgenmode none; ip link set beyond addrgenmode none # or they would be neighbours
	ip link set beyond up; ip addr add 192.0.2.1/24 dev beyond
	ip link set uplink up; ip addr add 192.0.2.10/24 dev uplink
	ip route add default via 192.0.2.1 dev uplink
	exec "$@"' apart "$@"
