#!/bin/sh
# Writes the generated code of the repository (make generate). With --check nothing is written: it fails, and shows the
# difference, when the generated code is not what the sources say (make check).
#
# The generator is k8s.io/kube-openapi's, at the version that go.mod pins; nothing is installed.
set -eu
cd "$(dirname "$0")/.."

mode=write
case "${1:-}" in
"") ;;
--check) mode=check ;;
*)
	echo "generate.sh: unknown argument '$1'; the only one is --check" >&2
	exit 2
	;;
esac

# The packages whose types the API server serves, and those that their fields are made of.
packages="
k8s.io/api/core/v1
k8s.io/api/coordination/v1
k8s.io/api/events/v1
k8s.io/api/authentication/v1
k8s.io/api/authorization/v1
k8s.io/apimachinery/pkg/api/resource
k8s.io/apimachinery/pkg/apis/meta/v1
k8s.io/apimachinery/pkg/runtime
k8s.io/apimachinery/pkg/util/intstr
k8s.io/apimachinery/pkg/version
"
package=internal/apiserver/openapi
file=zz_generated.openapi.go

out=$package
if [ $mode = check ]; then
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
fi

# The report lists names in k8s.io/api that break its own naming rules: theirs, not ours.
# shellcheck disable=SC2086 # one argument a package
CGO_ENABLED=0 go run k8s.io/kube-openapi/cmd/openapi-gen \
	--go-header-file /dev/null --report-filename /dev/null \
	--output-dir "$out" --output-pkg "monopod.dev/monopod/$package" --output-file "$file" \
	$packages

if [ $mode = check ] && ! diff -u "$package/$file" "$out/$file" >&2; then
	echo "generate.sh: $package/$file is stale; run 'make generate' and commit it" >&2
	exit 1
fi
