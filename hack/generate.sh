#!/bin/bash
# Writes the generated code of the repository (make generate). With --check nothing is written: it fails when the generated code is not what its
# sources say (make check).
#
# The generator is k8s.io/kube-openapi's, at the version that go.mod pins; nothing is installed. What is generated follows from the versions of the
# modules, from this script, and from nothing else: generated.sum holds the hash of these and of every file that was written, so that the check is one
# of hashes.
set -euo pipefail
cd "$(dirname "$0")/.."

check=
case "${1:-}" in
"") ;;
--check) check=1 ;;
*)
	echo "generate.sh: unknown argument '$1'; the only one is --check" >&2
	exit 2
	;;
esac

# A package of definitions for each API group that is served, and one for what the types of all of them are made of: its name, and the Go packages.
groups='
meta k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version
apps k8s.io/api/apps/v1
authentication k8s.io/api/authentication/v1
authorization k8s.io/api/authorization/v1
autoscaling k8s.io/api/autoscaling/v1 k8s.io/api/autoscaling/v2
batch k8s.io/api/batch/v1
certificates k8s.io/api/certificates/v1
coordination k8s.io/api/coordination/v1
core k8s.io/api/core/v1
discovery k8s.io/api/discovery/v1
events k8s.io/api/events/v1
metrics k8s.io/metrics/pkg/apis/metrics/v1beta1
networking k8s.io/api/networking/v1
node k8s.io/api/node/v1
policy k8s.io/api/policy/v1
rbac k8s.io/api/rbac/v1
scheduling k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3
'
package=internal/apiserver/openapi
file=zz_generated.openapi.go
sums=$package/generated.sum

# sources are what the generated code follows from.
sources() {
	go list -m -f '{{.Path}} {{.Version}}' k8s.io/api k8s.io/apimachinery k8s.io/kube-openapi k8s.io/metrics
	cat hack/generate.sh
}

# hashes are those of the sources and of what is there.
hashes() {
	printf '%s  sources\n' "$(sources | sha256sum | cut -d' ' -f1)"
	sha256sum "$package"/*/"$file"
}

if [ -n "$check" ]; then
	if ! diff -u "$sums" <(hashes) >&2; then
		echo "generate.sh: the generated code in $package is stale, or was edited; run 'make generate' and commit it" >&2
		exit 1
	fi
	exit 0
fi

mkdir -p bin
CGO_ENABLED=0 go build -o bin/openapi-gen k8s.io/kube-openapi/cmd/openapi-gen
rm -rf "$package"/*/"$file"
while read -r name packages; do
	[ -n "$name" ] || continue
	echo "$package/$name"
	# The report lists names in k8s.io/api that break its own naming rules: theirs, not ours.
	# shellcheck disable=SC2086 # one argument a package
	bin/openapi-gen --go-header-file /dev/null --report-filename /dev/null \
		--output-dir "$package/$name" --output-pkg "monopod.dev/monopod/$package/$name" --output-file "$file" $packages
done <<<"$groups"
hashes >"$sums"
