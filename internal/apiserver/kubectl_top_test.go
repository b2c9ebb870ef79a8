package apiserver_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	metrics "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"
)

// began is when counters were 0.
var began = time.Now()

// usingAgent is an agent on whose node a quarter of a processor is used, by each of two pods' containers a tenth.
func usingAgent(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics/resource" || len(r.TLS.PeerCertificates) == 0 {
		http.Error(w, "not here", http.StatusForbidden)
		return
	}
	now := time.Now()
	seconds := float64(now.UnixMilli()-began.UnixMilli()) / 1000
	fmt.Fprintf(w, "node_cpu_usage_seconds_total %.9f %d\nnode_memory_working_set_bytes %d\n", seconds/4, now.UnixMilli(), 512<<20)
	for _, c := range []string{`container="a",namespace="default",pod="one"`, `container="b",namespace="default",pod="one"`, `container="a",namespace="default",pod="two"`} {
		fmt.Fprintf(w, "container_cpu_usage_seconds_total{%s} %.9f %d\ncontainer_memory_working_set_bytes{%s} %d\n", c, seconds/10, now.UnixMilli(), c, 64<<20)
	}
}

// usedPod makes a pod that runs on a node.
func (i *instance) usedPod(t *testing.T, name, node string, labels map[string]string) {
	t.Helper()
	pods := i.admin(t).CoreV1().Pods("default")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "a", Image: "i"}}}}
	pod, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.Phase = corev1.PodRunning
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestKubectlTop: what is used, by the real kubectl, with nothing but an agent.
func TestKubectlTop(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	i.node(t, "n1", "127.0.0.1", serveAsAgent(t, i, usingAgent))
	// The agent of another node accepts, and never says a word.
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	i.node(t, "n2", "127.0.0.1", int32(portOf(silent.Addr())))
	i.node(t, "n3", "127.0.0.1", 1) // nobody is there
	i.usedPod(t, "one", "n1", map[string]string{"app": "x"})
	i.usedPod(t, "two", "n1", nil)
	i.usedPod(t, "away", "n2", map[string]string{"app": "x"})
	k := i.kubectl(t)
	k.run("label", "node", "n1", "disk=ssd")
	capacity := `{"status":{"capacity":{"cpu":"1","memory":"1Gi"},"allocatable":{"cpu":"1","memory":"1Gi"}}}`
	for _, n := range []string{"n1", "n2", "n3"} {
		k.run("patch", "node", n, "--subresource=status", "-p", capacity)
	}

	rows := func(args ...string) (all []string) {
		for _, row := range columns(k.run(append(args, "--no-headers")...)) {
			all = append(all, strings.Join(row, " "))
		}
		slices.Sort(all)
		return all
	}
	expect := func(got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(rows("top", "node", "-l", "disk=ssd"), "n1 250m 25% 512Mi 50%")
	expect(rows("top", "node"), "n1 250m 25% 512Mi 50%", "n2 <unknown> <unknown> <unknown> <unknown>", "n3 <unknown> <unknown> <unknown> <unknown>")
	expect(rows("top", "node", "n1"), "n1 250m 25% 512Mi 50%")
	expect(rows("top", "pod"), "one 200m 128Mi", "two 100m 64Mi")
	expect(rows("top", "pod", "-A", "-l", "app=x"), "default one 200m 128Mi")
	expect(rows("top", "pod", "--containers", "--field-selector", "metadata.name=one"), "one a 100m 64Mi", "one b 100m 64Mi")
	expect(rows("top", "pod", "two"), "two 100m 64Mi")
	k.fail(`nodemetrics.metrics.k8s.io "none" not found`, "", "top", "node", "none")
	k.fail(`podmetrics.metrics.k8s.io "default/none" not found`, "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/none")
	k.fail("ServiceUnavailable", "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes/n3")
	table := columns(k.run("get", "pods.metrics.k8s.io", "two", "--no-headers"))
	if len(table) != 1 || table[0][0] != "two" || table[0][2] != "64Mi" {
		t.Errorf("table %q", table)
	}
	if out := k.run("explain", "podmetrics.containers.usage", "--api-version=metrics.k8s.io/v1beta1"); !strings.Contains(out, "usage") {
		t.Errorf("explain: %s", out)
	}

	client, err := metricsclient.NewForConfig(i.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.MetricsV1beta1().PodMetricses("default").List(t.Context(), metav1.ListOptions{LabelSelector: labels.Set{"app": "x"}.String()})
	if err != nil || len(list.Items) != 1 || !ofItsTime(&list.Items[0]) {
		t.Errorf("%+v, %v", list, err)
	}
}

// ofItsTime says that metrics are of a pod of their own time.
func ofItsTime(m *metrics.PodMetrics) bool {
	return m.Name == "one" && m.Namespace == "default" && m.Labels["app"] == "x" && len(m.Containers) == 2 && m.Window.Duration >= time.Second &&
		!m.Timestamp.After(time.Now()) && !m.Timestamp.IsZero()
}

// TestRightsToMetrics: who may view a namespace may see what its pods use, there and nowhere else.
func TestRightsToMetrics(t *testing.T) {
	i := startWithTokens(t)
	defer i.end(t)
	admin := i.kubectl(t)
	joe := kubectl{t: t, kubeconfig: tokenKubeconfig(t, i, "joes"), home: t.TempDir()}
	const pods = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"
	joe.fail("Forbidden", "", "get", "--raw", pods)
	admin.run("create", "rolebinding", "view", "--clusterrole=view", "--user=joe")
	joe.run("get", "--raw", pods)
	joe.fail("Forbidden", "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods")
	joe.fail("Forbidden", "", "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
	admin.run("create", "clusterrolebinding", "top", "--clusterrole=system:aggregated-metrics-reader", "--user=joe")
	joe.run("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
}
