# Runs podman in a copy of the host's files, so that nothing of it comes to the host, which has no podman. Called in a mount namespace of
# its own:
#
#   run.sh DIR PACKAGES RUNC SPECS ROOTFS ARGUMENTS...
#
# DIR is an empty directory; PACKAGES has the unpacked packages; RUNC is the OCI runtime; SPECS becomes /etc/cdi; ROOTFS becomes /tmp/rootfs.
set -eu
dir=$1 packages=$2 runc=$3 specs=$4 rootfs=$5
shift 5
mount -t tmpfs tmpfs "$dir"
mkdir -p "$dir/up/usr" "$dir/work" "$dir/root"
cp -a "$packages/." "$dir/up/"
for part in bin lib lib64 sbin; do # which are links to /usr's on the host, and directories in packages
	if [ -d "$dir/up/$part" ]; then
		cp -a "$dir/up/$part" "$dir/up/usr/"
		rm -r "$dir/up/$part"
	fi
done
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/up,workdir=$dir/work" "$dir/root"
cd "$dir/root"
mkdir -p etc/cdi etc/containers old
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir tmp/rootfs
cp "$runc" tmp/runc
cp -a "$rootfs/." tmp/rootfs/
mount --bind "$specs" etc/cdi
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >etc/containers/policy.json
pivot_root . old
cd /
umount -l /old
# Limits are lowered, because podman raises them, for which root needs CAP_SYS_RESOURCE.
exec podman --root /tmp/store --runroot /run/store --storage-driver vfs --cgroup-manager cgroupfs --runtime /tmp/runc --events-backend none \
	run --rm --network none --ulimit nofile=256:256 --ulimit nproc=256:256 "$@"
