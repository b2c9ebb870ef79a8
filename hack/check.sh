#!/bin/bash
# check.sh TAGS CGO-PACKAGES...  formatting, vet, golangci-lint, the import rules and the freshness of generated code.
set -euo pipefail
cd "$(dirname "$0")/.."
tags=$1
shift
fail=0
unformatted=$(git ls-files '*.go' | xargs -r ls -d 2>/dev/null | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'not formatted; run gofmt -w on:\n%s\n' "$unformatted" >&2
	fail=1
fi
withcgo=(-e /internal/executor -e /cmd/monopod-executor)
plain=$(CGO_ENABLED=0 go list ./... | grep -v "${withcgo[@]}")
CGO_ENABLED=0 go vet $plain || fail=1
CGO_ENABLED=0 go vet -tags kubelet,netgo,osusergo ./test/kubelet || fail=1
CGO_ENABLED=0 go vet -tags plugins,netgo,osusergo ./test/plugins || fail=1
CGO_ENABLED=0 go vet -tags helm,netgo,osusergo ./test/helm || fail=1
CGO_ENABLED=0 go vet -tags ingress,netgo,osusergo ./test/ingress || fail=1
# What cgo has made of a file names the directory of the clone in which it was made, and is read here: a macro that nothing asks for makes the packages that use
# cgo this clone's own. All others are shared with what was built.
own="${CGO_CPPFLAGS:-} -DCHECKED_IN_$(pwd | sha256sum | cut -c1-16)"
CGO_CPPFLAGS=$own CGO_ENABLED=1 go vet -tags "$tags" "$@" || fail=1
# The linter's version is pinned in a module of its own, so that ours does not get what it needs.
if CGO_ENABLED=0 go build -modfile=hack/tools/go.mod -o bin/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint; then
	# What it has found is kept below what Go has compiled: where one is kept from a run to the next, the other is. Its keys name files by their place in the
	# module, so that it serves another clone as well.
	export GOLANGCI_LINT_CACHE=${GOLANGCI_LINT_CACHE:-$(go env GOCACHE)/golangci-lint}
	CGO_ENABLED=0 bin/golangci-lint run $(CGO_ENABLED=0 go list -tags kubelet,plugins,helm,ingress,netgo,osusergo -f '{{.Dir}}' ./... | grep -v "${withcgo[@]}") || fail=1
	CGO_CPPFLAGS=$own CGO_ENABLED=1 bin/golangci-lint run "$@" || fail=1
else
	fail=1
fi
# Where all tests run, the import rules are among them.
[ -n "${ALL_TESTS_RUN:-}" ] || CGO_ENABLED=0 go test ./internal/archtest || fail=1
[ ! -x hack/generate.sh ] || hack/generate.sh --check || fail=1
CGO_ENABLED=0 go mod tidy -diff >/dev/null || { echo "go.mod is not tidy: run 'go mod tidy'" >&2; fail=1; }
exit $fail
