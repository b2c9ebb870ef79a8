#!/bin/sh
# build.sh NAME VERSION FILE  builds an unmodified device plugin of a published version (sample v1.36.3) from its Go module.
# sample is Kubernetes' own; k8s.io/kubernetes needs the modules of its staging folder, each at the version v0.X.Y that was published for v1.X.Y.
set -eu
name=$1
version=$2
file=$(realpath -m "$3")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS="-mod=mod -trimpath" GOWORK=off CGO_ENABLED=0
go mod init plugin.build 2>/dev/null
case $name in
sample)
	module=k8s.io/kubernetes package=k8s.io/kubernetes/test/images/sample-device-plugin
	gomod=$(go mod download -json "$module@$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
	for staged in $(sed -n "s,^\t\(k8s\.io/[a-z0-9-]*\) => \./staging/.*,\1,p" "$gomod"); do
		go mod edit -replace "$staged=$staged@v0.${version#v1.}"
	done
	;;
*)
	echo "build.sh builds sample, not $name" >&2
	exit 2
	;;
esac
go mod edit -require "$module@$version"
go build -ldflags "-s -w" -o "$file" "$package"
