package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monopod.dev/monopod/test/harness"
)

// shop is what the parts of TestKubectl work on: a deployment of two nginx behind a service.
const shop = `{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop", "labels": {"app": "shop"}}, "spec": {"replicas": %d, "selector": {"matchLabels": {"app": "shop"}},
		"template": {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [{"name": "nginx", "image": "registry.test/test/nginx:1", "ports": [{"containerPort": 80}]}]}}}},
	{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "labels": {"app": "shop"}}, "spec": {"selector": {"app": "shop"}, "ports": [{"name": "http", "port": 8080, "targetPort": 80}]}}]}`

// TestKubectl is what people do with kubectl to workloads, services and nodes, on one node. Others have tests of their own: scale, expose, wait, get all, rollouts
// forth and back and restarts (testDeployment, TestSets), autoscale, cordon and uncordon (TestScaling), top (TestPrometheus), debug of pods (testDebug).
func TestKubectl(t *testing.T) {
	n := workload(t)
	n.Apply(fmt.Sprintf(shop, 2))
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	t.Run("port-forward", func(t *testing.T) { testPortForwards(t, n) })
	t.Run("logs and exec", func(t *testing.T) { testByWorkload(t, n) })
	t.Run("run and attach", func(t *testing.T) { testRunAttached(t, n) })
	t.Run("cp", func(t *testing.T) { testCopy(t, n) })
	t.Run("diff", func(t *testing.T) { testDiff(t, n) })
	t.Run("cluster-info", func(t *testing.T) { testClusterInfo(t, n) })
	t.Run("set, rollout pause and resume", func(t *testing.T) { testSet(t, n) })
	t.Run("debug a node", func(t *testing.T) { testDebugNode(t, n) })
	t.Run("drain", func(t *testing.T) { testDrainNode(t, n) })
}

// testPortForwards: a service's port leads to that of one of its pods.
func testPortForwards(t *testing.T, n *harness.Node) {
	for _, overWebSocket := range []string{"true", "false"} {
		testPortForward(t, n, "service/shop", "8080", overWebSocket)
	}
	testPortForward(t, n, "svc/shop", "http", "true")
	testPortForward(t, n, "deployment/shop", "80", "true")
}

// testByWorkload: logs and exec find a pod by what owns it, or leads to it.
func testByWorkload(t *testing.T, n *harness.Node) {
	pods := n.Kubectl("get", "pods", "-l", "app=shop", "-o", "name")
	for _, of := range []string{"deploy/shop", "svc/shop"} {
		if out := n.Kubectl("exec", of, "--", "hostname"); !strings.Contains(pods, "pod/"+out) {
			t.Errorf("kubectl exec %s -- hostname: %q, want one of\n%s", of, out, pods)
		}
	}
	for _, pod := range strings.Fields(pods) {
		n.Kubectl("exec", pod, "--", "wget", "-q", "-O", "/dev/null", "http://127.0.0.1/")
	}
	for _, of := range []string{"deploy/shop", "replicaset/" + n.Kubectl("get", "rs", "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}"), "svc/shop"} {
		harness.Eventually(t, "the log of "+of+" has the request", func() (bool, string) {
			out := n.Kubectl("logs", of)
			return strings.Contains(out, `"GET / HTTP/1.1" 200`), out
		})
	}
	all := n.Kubectl("logs", "deploy/shop", "--all-pods", "--prefix", "--tail=1")
	for _, pod := range strings.Fields(pods) {
		if !strings.Contains(all, "["+pod+"/nginx] ") {
			t.Errorf("kubectl logs deploy/shop --all-pods has no line of %s:\n%s", pod, all)
		}
	}
}

// testRunAttached: the output of a command comes once and whole, whether it ends before it can be attached to or after its input.
func testRunAttached(t *testing.T, n *harness.Node) {
	for i, command := range []string{"echo one; echo two", "cat; echo two"} {
		for try := range 4 {
			out, err := n.TryKubectl("one\n", "run", fmt.Sprintf("short-%d-%d", i, try), "-q", "--rm", "-i", "--restart=Never", "--image="+busybox, "--command", "--", "sh", "-c", command)
			if err != nil || out != "one\ntwo\n" {
				t.Errorf("%s: %q, %v", command, out, err)
			}
		}
	}
}

// testCopy: files and directories go into a container and come back as they were.
func testCopy(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	big := strings.Repeat("0123456789abcdef", 1<<16) // more than any buffer on the way
	for name, content := range map[string]string{"in/page.html": "hello\n", "in/deeper/big": big, "in/with space": "", "in/run.sh": "#!/bin/sh\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "in/run.sh"), 0o755); err != nil {
		t.Fatal(err)
	}
	pod := n.Kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}")
	n.Kubectl("cp", filepath.Join(dir, "in/page.html"), pod+":/usr/share/nginx/html/page.html", "-c", "nginx")
	if out := n.Kubectl("exec", pod, "--", "wget", "-q", "-O", "-", "http://127.0.0.1/page.html"); out != "hello\n" {
		t.Errorf("nginx serves what was copied as %q", out)
	}
	n.Kubectl("cp", filepath.Join(dir, "in"), "default/"+pod+":/tmp/in")
	n.Kubectl("cp", pod+":/tmp/in", filepath.Join(dir, "out"))
	if out, err := exec.Command("diff", "-r", filepath.Join(dir, "in"), filepath.Join(dir, "out")).CombinedOutput(); err != nil {
		t.Errorf("there and back: %v\n%s", err, out[:min(len(out), 2000)])
	}
	if out := n.Kubectl("exec", pod, "--", "stat", "-c", "%a", "/tmp/in/run.sh", "/tmp/in/page.html"); out != "755\n640\n" {
		t.Errorf("permissions in the container: %q", out)
	}
}

// testDiff: kubectl diff says what an apply would change, and changes nothing.
func testDiff(t *testing.T, n *harness.Node) {
	const page = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "page"}, "data": {"title": %q}}`
	if _, err := n.TryKubectl(fmt.Sprintf(page, "one"), "apply", "--server-side", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		manifest string
		flags    []string
		want     string // "" is no difference
	}{
		{fmt.Sprintf(shop, 2), nil, ""},
		{fmt.Sprintf(shop, 5), nil, "\n-  replicas: 2\n+  replicas: 5\n"},
		{strings.ReplaceAll(fmt.Sprintf(shop, 2), "nginx:1", "nginx:2"), nil, "\n-      - image: registry.test/test/nginx:1\n+      - image: registry.test/test/nginx:2\n"},
		{strings.ReplaceAll(fmt.Sprintf(shop, 2), `"shop"`, `"other"`), nil, "\n+  name: other\n"},
		{fmt.Sprintf(page, "one"), []string{"--server-side"}, ""},
		{fmt.Sprintf(page, "two"), []string{"--server-side"}, "\n-  title: one\n+  title: two\n"},
	} {
		out, err := n.TryKubectl(c.manifest, append([]string{"diff", "-f", "-"}, c.flags...)...)
		var exit *exec.ExitError
		switch {
		case c.want == "" && (err != nil || out != ""):
			t.Errorf("kubectl diff %v of what is there: %v\n%s", c.flags, err, out)
		case c.want != "" && (!errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, c.want) || strings.Contains(out, "-  clusterIP")):
			t.Errorf("kubectl diff %v: %v, want exit code 1 and %q in\n%s", c.flags, err, c.want, out)
		}
	}
	if got := n.Kubectl("get", "deployment", "shop", "-o", "jsonpath={.spec.replicas} {.metadata.generation}"); got != "2 1" {
		t.Errorf("replicas and generation afterwards: %s", got)
	}
}

func testClusterInfo(t *testing.T, n *harness.Node) {
	out := regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(n.Kubectl("cluster-info"), "") // it is coloured
	server := n.Kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	for _, want := range []string{"Kubernetes control plane is running at " + server, " is running at " + server + "/api/v1/namespaces/kube-system/services/kube-dns"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl cluster-info lacks %q:\n%s", want, out)
		}
	}
	dir := t.TempDir()
	n.Kubectl("cluster-info", "dump", "--output-directory", dir)
	for _, want := range []string{"nodes.json", "default/deployments.json", "default/services.json", "kube-system/services.json"} {
		if fi, err := os.Stat(filepath.Join(dir, want)); err != nil || fi.Size() == 0 {
			t.Errorf("kubectl cluster-info dump: %s: %v", want, err)
		}
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "default/shop-*/logs.txt")); len(logs) != 2 {
		t.Errorf("kubectl cluster-info dump has logs %v, want those of two pods", logs)
	}
}

// testSet: what kubectl set changes in a deployment that is paused is rolled out at once when it goes on; an image that nobody has leaves the old pods.
func testSet(t *testing.T, n *harness.Node) {
	field := func(what, path string) string {
		t.Helper()
		return n.Kubectl("get", what, "-o", "jsonpath="+path)
	}
	status := func() string {
		t.Helper()
		return n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	}
	image := field("pods", "{.items[0].status.containerStatuses[0].imageID}")
	if !strings.Contains(image, "/nginx@sha256:") {
		t.Fatalf("the pod's image is %q", image)
	}
	n.Kubectl("create", "configmap", "season", "--from-literal=season=winter")
	n.Kubectl("rollout", "pause", "deployment/shop")
	n.Kubectl("set", "image", "deployment/shop", "nginx="+image)
	n.Kubectl("set", "resources", "deployment/shop", "-c=nginx", "--requests=cpu=10m,memory=8Mi", "--limits=memory=64Mi")
	n.Kubectl("set", "env", "deployment/shop", "--from=configmap/season", "--prefix=THE_")
	n.Kubectl("wait", "--for=jsonpath={.status.observedGeneration}="+field("deployment/shop", "{.metadata.generation}"), "deployment/shop", "--timeout=60s")
	if sets := n.Kubectl("get", "replicasets", "-l", "app=shop", "-o", "name"); strings.Count(sets, "\n") != 1 {
		t.Errorf("a deployment that is paused has the replica sets\n%s", sets)
	}
	n.Kubectl("rollout", "resume", "deployment/shop")
	if out := status(); !strings.Contains(out, "successfully rolled out") {
		t.Errorf("kubectl rollout status: %s", out)
	}
	if out := n.Kubectl("rollout", "history", "deployment/shop"); !strings.Contains(out, "\n2 ") || strings.Contains(out, "\n3 ") {
		t.Errorf("three changes of one that is paused are to be one revision:\n%s", out)
	}
	if out := n.Kubectl("rollout", "history", "deployment/shop", "--revision=2"); !strings.Contains(out, image) || !strings.Contains(out, "memory:\t64Mi") {
		t.Errorf("kubectl rollout history --revision=2:\n%s", out)
	}
	pod := field("pods", `{.items[?(@.spec.containers[0].resources.limits.memory=="64Mi")].metadata.name}`)
	pod, _, _ = strings.Cut(pod, " ")
	if out := n.Kubectl("exec", pod, "--", "sh", "-c", "echo $THE_SEASON"); out != "winter\n" {
		t.Errorf("the variable of the config map: %q", out)
	}
	if out := n.Kubectl("set", "env", "deployment/shop", "--list", "--resolve"); !strings.Contains(out, "THE_SEASON=winter") {
		t.Errorf("kubectl set env --list:\n%s", out)
	}

	n.Kubectl("set", "image", "deployment/shop", "*=registry.test/test/none:1")
	harness.Eventually(t, "a pod of the third revision waits for its image", func() (bool, string) {
		got := field("pods", "{.items[*].status.containerStatuses[*].state.waiting.reason}")
		return strings.Contains(got, "ErrImagePull") || strings.Contains(got, "ImagePullBackOff"), got
	})
	if out := n.Kubectl("rollout", "status", "deployment/shop", "--watch=false"); !strings.Contains(out, "1 out of 2 new replicas have been updated") {
		t.Errorf("kubectl rollout status of a rollout that cannot end: %s", out)
	}
	if got := field("deployment/shop", "{.status.availableReplicas}"); got != "2" {
		t.Errorf("%s pods are available meanwhile", got)
	}
	n.Kubectl("rollout", "undo", "deployment/shop", "--to-revision=1")
	status()
	if got := field("deployment/shop", "{.spec.template.spec.containers[0].image} {.spec.template.spec.containers[0].env}"); got != "registry.test/test/nginx:1 " {
		t.Errorf("the first revision has %q", got)
	}
}

// testDebugNode: a pod of kubectl debug sees the node.
func testDebugNode(t *testing.T, n *harness.Node) {
	out := n.Kubectl("debug", "node/"+n.Name, "--image="+busybox, "--profile=general", "--", "sh", "-c", "cat /host/proc/sys/kernel/random/boot_id; hostname")
	pod := regexp.MustCompile(`node-debugger-\S+[a-z0-9]`).FindString(out)
	if pod == "" {
		t.Fatalf("kubectl debug node: %s", out)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/"+pod, "--timeout=60s")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Kubectl("logs", pod); got != string(boot)+host+"\n" {
		t.Errorf("the pod saw %q, want the host's boot id and name", got)
	}
	n.Kubectl("delete", "pod", pod, "--timeout=60s")
}

// testDrainNode: pods leave a node that is drained, what nobody would make again only by force, and come back with it.
func testDrainNode(t *testing.T, n *harness.Node) {
	n.Apply(set("DaemonSet", "log", ""))
	n.Apply(pod("alone", "exec sleep 3600", `"terminationGracePeriodSeconds": 0,`))
	n.Apply(`{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "shop"}, "spec": {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "shop"}}}}`)
	n.Kubectl("rollout", "status", "daemonset/log", "--timeout=60s")
	n.Kubectl("wait", "--for=condition=Ready", "pod/alone", "--timeout=60s")
	n.Kubectl("wait", "--for=jsonpath={.status.disruptionsAllowed}=2", "pdb/shop", "--timeout=60s")
	_, err := n.TryKubectl("", "drain", n.Name, "--timeout=60s")
	for _, want := range []string{"ignore-daemonsets", "default/log-", "use --force", "default/alone"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("kubectl drain without flags: %v, want %q", err, want)
		}
	}
	n.Kubectl("drain", n.Name, "--ignore-daemonsets", "--force", "--timeout=60s")
	left := n.Kubectl("get", "pods", "--field-selector=spec.nodeName="+n.Name, "-o", "jsonpath={.items[*].metadata.labels.app}")
	if left != "log" {
		t.Errorf("pods of the drained node: %q, want the daemon set's", left)
	}
	if out := n.Kubectl("get", "nodes", "--no-headers"); !strings.Contains(out, "Ready,SchedulingDisabled") {
		t.Errorf("the drained node: %s", out)
	}
	n.Kubectl("uncordon", n.Name)
	n.Kubectl("rollout", "status", "deployment/shop", "--timeout=60s")
	n.Kubectl("delete", "daemonset/log", "deployment/shop", "--cascade=foreground", "--timeout=60s")
}
