#!/bin/sh
# module.sh MODULE VERSION PACKAGE FILE [LDFLAGS] [CGO]  builds an unmodified program of a Go module (helm.sh/helm/v4 v4.3.1 cmd/helm), with what the module's own
# go.mod and go.sum name; CGO is 1 for one that needs a C compiler. A module that replaces others by folders of its repository cannot be built so: the folders are not in it.
set -eu
module=$1
version=$2
package=$3
file=$(realpath -m "$4")
mkdir -p "$(dirname "$file")"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export GOFLAGS="-trimpath -tags=netgo,osusergo" GOWORK=off
source=$(cd "$dir" && go mod download -json "$module@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
[ -n "$source" ] || { echo "module.sh: $module@$version could not be downloaded" >&2; exit 1; }
# The module cache is read-only, and Go builds a main module nowhere else than in its folder.
cp -r "$source" "$dir/module"
chmod -R u+w "$dir/module"
cd "$dir/module"
CGO_ENABLED=${6:-0} go build -mod=readonly -ldflags "-s -w ${5:-}" -o "$file" "./$package"
