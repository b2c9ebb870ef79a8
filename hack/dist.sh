#!/bin/bash
# dist.sh VERSION [ARCH...]  makes one archive of static programs for each architecture (amd64 arm64), with checksums, in dist/. Programs for an architecture
# that is not this machine's are linked by Debian's cross compiler, with the libseccomp of that architecture, which is unpacked and not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
shift
[ $# -gt 0 ] || set -- amd64 arm64
out=$PWD/dist
host=$(dpkg --print-architecture)
export GOFLAGS="-trimpath" GOOS=linux
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$out"
rm -f "$out"/monopod-*.tar.gz "$out"/SHA256SUMS
triplet() { case $1 in amd64) echo x86_64-linux-gnu ;; arm64) echo aarch64-linux-gnu ;; *) echo "dist.sh: $1 is not amd64 or arm64" >&2; exit 1 ;; esac; }

# libseccomp ARCH unpacks the development files of an architecture into $tmp/ARCH, by package lists of its own: the machine's stay as they are.
libseccomp() {
	local lists=$tmp/apt-$1
	mkdir -p "$lists/lists/partial" "$lists/cache/archives/partial" "$tmp/$1"
	local apt=(apt-get -qq -o "APT::Architecture=$1" -o "APT::Architectures=$1" -o "Dir::State::lists=$lists/lists" -o "Dir::Cache=$lists/cache" -o "APT::Sandbox::User=root")
	"${apt[@]}" update
	(cd "$lists" && "${apt[@]}" download libseccomp-dev)
	dpkg-deb -x "$lists"/libseccomp-dev_*.deb "$tmp/$1"
}

for arch in "$@"; do
	name=monopod-$version-linux-$arch
	dir=$tmp/$name
	mkdir -p "$dir"
	echo "building $name"
	cgo=(env CGO_ENABLED=1)
	if [ "$arch" != "$host" ]; then
		t=$(triplet "$arch")
		hack/need.sh "gcc-${t/x86_64/x86-64}" "libc6-dev-$arch-cross"
		libseccomp "$arch"
		cgo+=(CC="$t-gcc" CGO_CFLAGS="-O2 -g -I$tmp/$arch/usr/include" CGO_LDFLAGS="-O2 -g -L$tmp/$arch/usr/lib/$t" PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR="$tmp/$arch/usr/lib/$t/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$tmp/$arch")
	fi
	kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubectl | sed 's/^v0/v1/')
	GOARCH=$arch CGO_ENABLED=0 go build -tags netgo,osusergo -ldflags "-s -w -X main.version=$version" -o "$dir/monopod" ./cmd/monopod
	GOARCH=$arch CGO_ENABLED=0 go build -tags netgo,osusergo -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes" -o "$dir/kubectl" ./cmd/kubectl
	GOARCH=$arch "${cgo[@]}" go build -tags 'seccomp netgo osusergo' -ldflags '-s -w -linkmode external -extldflags "-static"' -o "$dir/monopod-executor" ./cmd/monopod-executor
	cp packaging/monopod.service packaging/INSTALL LICENSE README.md CHANGELOG.md SECURITY.md "$dir"
	# The same files make the same archive, whoever packs them, and when.
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=go=rX,u+rw,a-s --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" -C "$tmp" -cf - "$name" | gzip -n >"$out/$name.tar.gz"
done
(cd "$out" && sha256sum monopod-*.tar.gz >SHA256SUMS && cat SHA256SUMS)
