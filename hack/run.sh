#!/bin/bash
# run.sh starts a node in directories of its own, loads the example image, applies the example (a pod with a device, a Deployment
# behind a Service) and shows it; Ctrl-C stops the node, which leaves nothing behind. `make run` calls it with the binaries built.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
dir=$(mktemp -d /tmp/monopod-XXXXXX)
export KUBECONFIG=$dir/kubeconfig
node=

# The node is in a session of its own, so that Ctrl-C reaches this script alone, which then asks the node to stop, once: a second
# signal would end it in the middle.
finish() {
	trap '' INT TERM
	if [ -n "$node" ]; then
		kill -TERM "$node" 2>/dev/null || true
		wait "$node" || echo "the node's log is in $dir/log" >&2
	fi
	[ -d "$dir/data" ] || rm -rf "$dir"
	[ -z "${stopped:-}" ] || echo "The node has stopped; nothing is left."
}
trap finish EXIT
trap 'stopped=1; exit 0' INT TERM

mkfifo "$dir/ready"
setsid "$bin/monopod" up --ephemeral --data-dir "$dir/data" --run-dir "$dir/run" --pod-logs-dir "$dir/pods" \
	--write-kubeconfig "$KUBECONFIG" --cdi-spec-dirs "/etc/cdi,/var/run/cdi,$PWD/examples/cdi" \
	--network-mode bridge --etcd-tick 10ms "$@" >"$dir/ready" 2>"$dir/log" &
node=$!
# The node says one line when it is ready; when it ends before, the fifo ends too.
if ! read -r _ <"$dir/ready"; then
	wait "$node" || true
	node=
	grep -v 'level=INFO' "$dir/log" >&2 || true
	rm -rf "$dir"
	exit 1
fi
"$bin/monopod" image load --cri-socket "$dir/run/cri.sock" "$bin/hello.tar"
"$bin/kubectl" apply -f examples/hello.yaml
"$bin/kubectl" wait --for=condition=Ready pod/hello --timeout=60s
"$bin/kubectl" rollout status deployment/greeter --timeout=60s
echo
"$bin/kubectl" get nodes,pods,deployments,services -o wide
echo
"$bin/kubectl" logs hello --all-containers --prefix
echo
echo "The pod hello asks http://greeter/, the Service before the Deployment's pods:"
"$bin/kubectl" exec hello -c hello -- /hello ask http://greeter/
echo
echo "Ctrl-C stops the node. In another terminal, try:"
echo
echo "  export KUBECONFIG=$KUBECONFIG"
echo "  $bin/kubectl scale deployment greeter --replicas 4"
echo "  $bin/kubectl get pods -o wide"
echo
wait "$node"
