# `make help` lists the targets.

comma     := ,
GO        ?= go
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
BIN       := bin
LDFLAGS   := -s -w
# monopod and kubectl are plain Go; the executor needs cgo for libseccomp and for the start of a container's init.
PLAIN     := CGO_ENABLED=0
CGO       := CGO_ENABLED=1
CGO_TAGS  := seccomp netgo osusergo
CGO_LDFLAGS := -linkmode external -extldflags "-static"
CGO_PKGS  := ./cmd/monopod-executor ./internal/executor/...
# Every go command has these, so that what one has compiled serves all the others: vet, the linter, programs, tests, with cgo or without it, in this clone or
# in another. A command that names tags of its own names these as well.
export GOFLAGS := $(filter-out -trimpath -tags=netgo$(comma)osusergo,$(GOFLAGS)) -trimpath -tags=netgo$(comma)osusergo
# go test, which runs what failed once more; all calls of one make are one run, in which at most one test may be FLAKY (test/run). The tests are vetted by
# check; tests of an earlier run, here or in another clone, are not taken for run.
RUN_ID    := $(shell date +%s)-$(shell echo $$PPID)
GO_TEST   := $(GO) run ./test/run -id $(RUN_ID) -flaky _out/flaky -brief _out/failed -- -vet=off -count 1 '-ldflags=$(LDFLAGS)'
# The upstream kubelet of test-kubelet, unless another one is named.
KUBELET_VERSION := v1.36.3
MONOPOD_KUBELET ?= $(BIN)/test/kubelet-$(KUBELET_VERSION)
# How many times test-kills kills monopod.
KILLS     := 1000
# How many pods test-update has.
PODS      := 200
# The upstream kubectls of test-kubectl: the last three minor versions.
KUBECTL_VERSIONS := v1.35.4 v1.36.3 v1.37.2
# Kubernetes' own device plugin of test-plugins and test-kubelet, unless another build of it is named. The plugins of others are named only (test/plugins/README.md).
PLUGIN_VERSION := v1.36.3
MONOPOD_PLUGIN_SAMPLE ?= $(BIN)/test/plugins/sample-$(PLUGIN_VERSION)
# The hooks that NVIDIA's CDI specs name, unless another build of them is named.
TOOLKIT_VERSION := v1.20.0
MONOPOD_CDI_HOOK ?= $(BIN)/test/nvidia-cdi-hook-$(TOOLKIT_VERSION)

# The Helm of test-helm, unless other versions are named: v3.22.0, say.
HELM_VERSIONS := v4.3.1
# The ingress controller of test-ingress, unless another build of it is named.
TRAEFIK_VERSION := v3.6.12
MONOPOD_TRAEFIK ?= $(BIN)/test/traefik-$(TRAEFIK_VERSION)

# Packages whose tests make mounts, links, namespaces or cgroups: one at a time, each where nobody else sees its links and mounts. Those of images and of the
# executor take nothing of the host but mounts and cgroups of their own. All the other tests of packages take nothing of the host but its loopback.
HOST_PKGS  := ./internal/agent/volumes/... ./internal/dns/address ./internal/dns/hostnames ./internal/host/... ./internal/kit/volatilefile ./internal/netpolicy/table ./internal/network/... ./internal/proxy/... ./internal/runtime/... ./internal/state/...
UNIT_PKGS   = $$($(PLAIN) $(GO) list ./... | grep -v -E '/internal/(agent/volumes|dns/address|dns/hostnames|executor|host|image|kit/volatilefile|netpolicy/table|network|proxy|runtime|state)(/|$$)|/cmd/monopod-executor$$|/test/(bench|containerd|crash|e2e|escape|podman|vm)(/|$$)')
# The images of the examples, as archives, and their names.
EXAMPLES  := $(BIN)/hello.tar $(BIN)/guestbook.tar
IMAGE_hello     := localhost/monopod/hello:latest
IMAGE_guestbook := localhost/guestbook:1
BUILD_DEPS := gcc libc6-dev libseccomp-dev pkg-config
TEST_DEPS  := busybox-static e2fsprogs btrfs-progs xfsprogs nginx-light openssl curl docker-registry skopeo zstd containernetworking-plugins iptables nftables iproute2 apparmor containerd runc dbus-daemon
VM_DEPS    := qemu-system-x86 e2fsprogs xfsprogs binutils

.PHONY: help run build guestbook test check test-unit test-image test-executor test-host test-e2e test-kills test-database-kills test-update test-escape test-compat test-kubectl test-kubelet test-plugins test-helm test-ingress test-vm test-podman test-containerd test-vm-all test-dist flakes bench generate dist clean deps test-deps vm-deps FORCE
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: build $(BIN)/hello.tar need-root ## start a node with the examples in it; Ctrl-C stops it and leaves nothing behind
	@hack/run.sh $(ARGS)

build: deps $(BIN)/monopod $(BIN)/monopod-executor $(BIN)/kubectl ## build bin/monopod, bin/monopod-executor and bin/kubectl

$(BIN)/monopod: FORCE need-go
	$(PLAIN) $(GO) build -ldflags '$(LDFLAGS) -X main.version=$(VERSION)' -o $@ ./cmd/monopod

$(BIN)/monopod-executor: FORCE need-go
	$(CGO) $(GO) build -tags '$(CGO_TAGS)' -ldflags '$(LDFLAGS) $(CGO_LDFLAGS) -X main.version=$(VERSION)' -o $@ ./cmd/monopod-executor

# Another build, of another version, as an update brings it.
$(BIN)/test/other/monopod-executor: FORCE need-go
	$(CGO) $(GO) build -tags '$(CGO_TAGS)' -ldflags '$(LDFLAGS) $(CGO_LDFLAGS) -X main.version=$(VERSION)-other' -o $@ ./cmd/monopod-executor

$(BIN)/kubectl: FORCE need-go
	$(PLAIN) $(GO) build -ldflags "$(LDFLAGS) -X k8s.io/component-base/version.gitVersion=$$($(GO) list -m -f '{{.Version}}' k8s.io/kubectl | sed 's/^v0/v1/')" -o $@ ./cmd/kubectl

$(BIN)/test/kubelet-$(KUBELET_VERSION):
	hack/upstream.sh cmd/kubelet $(KUBELET_VERSION) $@

$(BIN)/test/plugins/sample-$(PLUGIN_VERSION):
	hack/upstream.sh test/images/sample-device-plugin $(PLUGIN_VERSION) $@

# It looks its driver's library up when it runs, so the symbols are not there when it is linked.
$(BIN)/test/nvidia-cdi-hook-$(TOOLKIT_VERSION):
	hack/module.sh github.com/NVIDIA/nvidia-container-toolkit $(TOOLKIT_VERSION) cmd/nvidia-cdi-hook $@ "'-extldflags=-Wl,--export-dynamic -Wl,--unresolved-symbols=ignore-in-object-files -Wl,-z,lazy'" 1

$(BIN)/test/kubectl-%:
	hack/upstream.sh cmd/kubectl $* $@

$(BIN)/test/helm-v4.%:
	hack/module.sh helm.sh/helm/v4 v4.$* cmd/helm $@ "-X helm.sh/helm/v4/internal/version.version=v4.$*"

$(BIN)/test/helm-v3.%:
	hack/module.sh helm.sh/helm/v3 v3.$* cmd/helm $@ "-X helm.sh/helm/v3/internal/version.version=v3.$*"

$(BIN)/test/traefik-$(TRAEFIK_VERSION):
	hack/module.sh github.com/traefik/traefik/v3 $(TRAEFIK_VERSION) cmd/traefik $@

$(BIN)/hello $(BIN)/guestbook: FORCE need-go
	$(PLAIN) $(GO) build -ldflags '$(LDFLAGS)' -o $@ ./examples/$(@F)

$(EXAMPLES): $(BIN)/%.tar: $(BIN)/%
	$(PLAIN) $(GO) run ./examples/mkimage -binary $< -name $(IMAGE_$*) -o $@

guestbook: $(BIN)/guestbook.tar ## build bin/guestbook.tar, the image of docs/TUTORIAL.md

# Four tracks side by side, so that two processors are never idle: the machines of test-vm are one thread each, and take nothing of the host; the end-to-end
# tests wait for most of their time and look at the whole host; the tests of packages that take something of the host have a network and mounts of their own
# (hack/apart.sh); all others take a processor and nothing of the host, and get less of it than those that wait for time as well, but enough for their
# deadlines. Everything is installed and built before, so that nobody does it at once. What check looks for waits for nothing but processors, and gets those
# that are left.
BESIDE = $(MAKE) --no-print-directory -o build -o $(BIN)/kubectl $(EXAMPLES:%=-o %) RUN_ID=$(RUN_ID)
test: need-root build deps test-deps vm-deps $(EXAMPLES) ## run all tests, as CI does
	@rm -f _out/failed; hack/beside.sh _out \
		machines '$(BESIDE) test-vm' \
		packages 'nice -n 5 $(BESIDE) test-unit test-image' \
		host '$(BESIDE) test-host test-executor && ALL_TESTS_RUN=1 nice -n 19 $(BESIDE) check' \
		e2e '$(BESIDE) test-e2e test-podman test-containerd'; \
		status=$$?; [ ! -e _out/failed ] || { echo '=== what failed, in brief:'; cat _out/failed; }; exit $$status

check: need-go deps ## formatting, vet, golangci-lint, the import rules, generated code
	@hack/check.sh '$(CGO_TAGS)' $(CGO_PKGS)

test-unit: need-root test-deps $(BIN)/kubectl ## tests of the packages that take nothing of the host but its loopback
	$(PLAIN) MONOPOD_KUBECTL='$(abspath $(BIN))/kubectl' $(GO_TEST) -p 2 -timeout 20m -- $(UNIT_PKGS)

test-image: need-root test-deps ## tests of images, with mounts of their own
	$(PLAIN) $(GO_TEST) -p 1 -timeout 10m -exec 'unshare -m' -- ./internal/image/...

test-executor: need-root test-deps ## tests of the executor
	$(CGO) $(GO_TEST) -p 1 -timeout 10m -exec 'unshare -m' -tags '$(CGO_TAGS)' -- $(CGO_PKGS)

test-host: need-root test-deps ## tests of the packages that make mounts, links, namespaces or cgroups
	$(PLAIN) $(GO_TEST) -p 1 -timeout 10m -exec '$(CURDIR)/hack/apart.sh' -- $(HOST_PKGS)

test-e2e: need-root test-deps build $(EXAMPLES) ## end-to-end tests with the real kubectl, and a part of test-escape
	$(PLAIN) $(GO_TEST) -p 1 -timeout 20m -short -- ./test/escape ./test/e2e/... ./test/crash/...

test-kills: need-root test-deps build ## random kills of monopod under rollouts, jobs, services, policies and DNS: [KILLS=1000] [SEED=n]
	$(PLAIN) MONOPOD_TEST_KILLS=$(KILLS) MONOPOD_TEST_SEED=$(SEED) $(GO) test -v -timeout 6h -count 1 -run '^TestRandomDeaths$$' ./test/crash $(ARGS)

test-database-kills: KILLS := 200
test-database-kills: need-root test-deps build ## kills of monopod under a database that is written to: [KILLS=200] [SEED=n]
	$(PLAIN) MONOPOD_TEST_DATABASE_KILLS=$(KILLS) MONOPOD_TEST_SEED=$(SEED) $(GO) test -v -timeout 6h -count 1 -run '^TestDatabaseKills$$' ./test/crash $(ARGS)

test-update: need-root test-deps build $(BIN)/test/other/monopod-executor ## update the executor under pods, to another build and back: [PODS=200]
	$(PLAIN) MONOPOD_TEST_UPDATE_PODS=$(PODS) MONOPOD_TEST_UPDATE_EXECUTOR='$(abspath $(BIN))/test/other/monopod-executor' $(GO) test -v -timeout 30m -count 1 -run '^TestUpdate$$' ./test/crash $(ARGS)

test-escape: need-root vm-deps test-deps build ## attack a node from inside its containers, as published and otherwise (docs/THREAT-MODEL.md)
	$(PLAIN) $(GO) test -timeout 60m -count 1 ./test/escape $(ARGS)
	$(PLAIN) $(GO) test -timeout 30m -count 1 -run '^TestEscapeOnCgroupV2$$' ./test/vm

test-vm: need-root vm-deps test-deps build $(EXAMPLES) ## the example and a part of the tests on pure cgroup v2, in a virtual machine
	$(PLAIN) $(GO_TEST) -p 2 -timeout 60m -- ./test/vm/...

test-podman: need-root vm-deps test-deps build ## the CDI specs of the examples with Debian's podman, which is not installed for it
	$(PLAIN) $(GO_TEST) -timeout 10m -- ./test/podman

test-containerd: need-root test-deps build ## our agent on Debian's containerd (docs/RUNTIMES.md)
	$(PLAIN) $(GO_TEST) -timeout 10m -- ./test/containerd

test-vm-all: need-root vm-deps test-deps build $(EXAMPLES) ## all tests that touch the host on pure cgroup v2, in virtual machines
	$(PLAIN) $(GO) run ./test/vm/all -tags '$(CGO_TAGS)' -cgo '$(CGO_PKGS)' $(ARGS)
	$(PLAIN) MONOPOD_VM_ALL=1 $(GO) test -timeout 30m -count 1 -run '^TestSELinux$$' ./test/vm

# The archives are of what is committed; their names are those of the version.
test-dist: need-root vm-deps dist ## start a node of each archive of `make dist` in an emulated machine of its architecture
	@hack/need.sh qemu-system-arm
	$(PLAIN) MONOPOD_DIST="$$(ls $(CURDIR)/dist/monopod-*.tar.gz | paste -sd:)" $(GO) test -v -timeout 60m -count 1 -run '^TestDist$$' ./test/vm

# Tests with programs of others that nobody installs for `make test`: built here, pinned by version. None of them is in CI.
test-compat: test-kubectl test-kubelet test-plugins test-helm test-ingress ## tests with other programs: upstream kubectls, an upstream kubelet, device plugins, Helm, an ingress controller

test-kubectl: need-root test-deps build $(KUBECTL_VERSIONS:%=$(BIN)/test/kubectl-%) ## the API server and pods with the upstream kubectls of three minor versions
	@set -e; export CGO_ENABLED=0; for v in $(KUBECTL_VERSIONS); do echo "kubectl $$v"; export MONOPOD_KUBECTL='$(abspath $(BIN))/test/kubectl-'$$v; \
		$(GO) test -count 1 ./internal/apiserver $(ARGS); $(GO) test -count 1 -run 'TestWorkloads|TestExample' ./test/e2e $(ARGS); done

test-kubelet: need-root test-deps build $(MONOPOD_KUBELET) $(MONOPOD_PLUGIN_SAMPLE) ## an upstream kubelet on our runtime; test/kubelet/README.md
	$(PLAIN) MONOPOD_KUBELET='$(abspath $(MONOPOD_KUBELET))' MONOPOD_PLUGIN_SAMPLE='$(abspath $(MONOPOD_PLUGIN_SAMPLE))' $(GO) test -tags kubelet,netgo,osusergo -timeout 30m -count 1 ./test/kubelet $(ARGS)

test-plugins: need-root test-deps build $(MONOPOD_PLUGIN_SAMPLE) $(MONOPOD_CDI_HOOK) ## device plugins of others, and NVIDIA's hooks; test/plugins/README.md
	$(PLAIN) MONOPOD_PLUGIN_SAMPLE='$(abspath $(MONOPOD_PLUGIN_SAMPLE))' MONOPOD_CDI_HOOK='$(abspath $(MONOPOD_CDI_HOOK))' $(GO) test -tags plugins,netgo,osusergo -timeout 15m -count 1 ./test/plugins $(ARGS)

test-helm: need-root test-deps build $(HELM_VERSIONS:%=$(BIN)/test/helm-%) ## charts by Helm; test/helm/README.md
	@set -e; for v in $(HELM_VERSIONS); do echo "helm $$v"; $(PLAIN) MONOPOD_HELM='$(abspath $(BIN))/test/helm-'$$v $(GO) test -tags helm,netgo,osusergo -timeout 30m -count 1 ./test/helm $(ARGS); done

test-ingress: need-root test-deps build $(MONOPOD_TRAEFIK) ## an ingress controller of others; test/ingress/README.md
	$(PLAIN) MONOPOD_TRAEFIK='$(abspath $(MONOPOD_TRAEFIK))' $(GO) test -tags ingress,netgo,osusergo -timeout 30m -count 1 ./test/ingress $(ARGS)

flakes: need-root test-deps vm-deps build $(EXAMPLES) ## run tests again and again, to find the flaky ones: [PKG=...] [TIME=30m] [ROUNDS=n, 0 shows the tally]
	@$(PLAIN) $(GO) run ./test/flakes -tags '$(CGO_TAGS)' -cgo '$(CGO_PKGS)' $(if $(ROUNDS),-rounds $(ROUNDS)) $(if $(TIME),-time $(TIME)) $(if $(FORGET),-forget '$(FORGET)') $(PKG)

bench: need-root build test-deps ## measure: pod up and down, create to Running, memory, sizes
	$(PLAIN) $(GO) test -run "^$$" -bench . -benchtime 30x -timeout 40m ./test/bench $(ARGS)

generate: need-go ## regenerate what is generated (OpenAPI definitions)
	@hack/generate.sh

dist: need-go deps ## static programs for amd64 and arm64 as archives with checksums, in dist/
	hack/dist.sh '$(VERSION)' $(ARGS)

clean: ## remove what was built
	rm -rf $(BIN) _run _out dist

deps:
	@hack/need.sh $(BUILD_DEPS)

test-deps:
	@hack/need.sh $(TEST_DEPS)

# The kernel is fetched, not installed: that takes the package lists, which a minimal machine may lack.
vm-deps:
	@hack/need.sh $(VM_DEPS)
	@apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1 || apt-get update

need-go:
	@command -v $(GO) >/dev/null || { echo "Go is missing: install Go 1.26 or newer (https://go.dev/dl) and put it into PATH" >&2; exit 1; }

need-root:
	@[ "$$(id -u)" = 0 ] || { echo "this needs root: containers, network namespaces and mounts are made for real; use sudo" >&2; exit 1; }

FORCE:
