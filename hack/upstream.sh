#!/bin/sh
# upstream.sh PACKAGE VERSION FILE  builds an unmodified program of a Kubernetes version (cmd/kubelet v1.36.3) from its Go module.
# k8s.io/kubernetes needs the modules of its staging folder, each at the version v0.X.Y that was published for v1.X.Y.
set -eu
package=$1
version=$2
file=$(realpath -m "$3")
mkdir -p "$(dirname "$file")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS="-mod=mod -trimpath" GOWORK=off
go mod init upstream.build 2>/dev/null
gomod=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
go mod edit -require "k8s.io/kubernetes@$version"
for module in $(sed -n "s,^\t\(k8s\.io/[a-z0-9-]*\) => \./staging/.*,\1,p" "$gomod"); do
	go mod edit -replace "$module=$module@v0.${version#v1.}"
done
CGO_ENABLED=0 go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$file" "k8s.io/kubernetes/$package"
