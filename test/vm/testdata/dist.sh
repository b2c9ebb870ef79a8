# Installs what an archive of `make dist` has, starts a node, and runs a pod of the architecture that the machine is of.
set -eu
mkdir unpacked
tar -xzf monopod.tar.gz -C unpacked
cd unpacked/monopod-*
for file in monopod monopod-executor kubectl monopod.service INSTALL LICENSE README.md CHANGELOG.md SECURITY.md; do
	[ -s "$file" ] || { echo "the archive has no $file"; exit 1; }
done
# As INSTALL says, in words that Debian's busybox knows.
mkdir -p /usr/local/bin
cp monopod monopod-executor kubectl /usr/local/bin/
cd /payload
export PATH=$PATH:/usr/local/bin KUBECONFIG=/etc/monopod/kubeconfig
uname -srm
monopod version
monopod check || echo "monopod check: $?"
mkfifo ready
monopod up --network-mode bridge >ready 2>log &
node=$!
failed() { grep -v level=INFO log; monopod status || true; kubectl describe pods || true; exit 1; }
read -r line <ready || failed
echo "$line"
monopod image load hello.tar
kubectl run hello --image localhost/monopod/hello:latest --image-pull-policy Never
kubectl wait --for=condition=Ready --timeout=10m node/monopod-vm pod/hello || failed
kubectl get nodes -o wide
kubectl get pods -o wide
machine=$(kubectl get nodes -o 'jsonpath={.items[0].status.nodeInfo.architecture}')
kubectl logs hello || failed
kubectl delete pod hello --timeout=10m
kill -TERM $node
wait $node || failed
monopod reset --yes
echo "a pod of $machine ran"
