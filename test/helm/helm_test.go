//go:build helm

package helm

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// patience is how long Helm waits for what is to become ready; it only ends a failure.
const patience = "3m"

// impatience is how long Helm waits for what never becomes ready, before it gives up and goes back.
const impatience = "15s"

// TestMain is this test's program, and in a pod the program fetch.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "fetch" {
		if err := fetch(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// fetch prints what is served at a URL; the API is asked by the pod's account. (Debian's static busybox has a wget that crashes where it resolves a name.)
func fetch(url string) error {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Timeout: time.Minute}
	if req.URL.Scheme == "https" {
		ca, err := os.ReadFile(account + "ca.crt")
		if err != nil {
			return err
		}
		token, err := os.ReadFile(account + "token")
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		req.Header.Set("Authorization", "Bearer "+string(token))
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("fetch %s: %s", url, resp.Status)
	}
	return nil
}

// tools is an image with busybox and fetch.
func tools(name string) (ociarchive.Image, error) {
	img, err := images.Busybox(name)
	if err != nil {
		return img, err
	}
	program, err := os.Executable()
	if err != nil {
		return img, err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return img, err
	}
	img.Layers = append(img.Layers, ociarchive.Layer{{Path: "usr/bin/fetch", Data: data, Mode: 0o755}})
	return img, nil
}

// cluster is a node, and a Helm that knows no other.
type cluster struct {
	*harness.Node
	t *testing.T
	// old is of a Helm before version 4.
	old bool
}

func start(t *testing.T) *cluster {
	t.Helper()
	if os.Getenv("MONOPOD_HELM") == "" {
		t.Skip("MONOPOD_HELM names no helm; make test-helm builds it")
	}
	hosts := harness.PushImages(t, "registry.test", map[string]harness.ImageMaker{
		"test/tools": tools,
		"test/nginx": func(name string) (ociarchive.Image, error) { return images.Nginx(name, 80) },
	})
	c := &cluster{Node: harness.NewNode(t, harness.Options{HostsTOML: hosts}), t: t}
	// Helm 3 waits until a service of the type LoadBalancer has an address: the node's, other than 127.0.0.1.
	at := harness.NewNeighbour(t, c.Node).Node[harness.IPv4].String()
	c.Start("--node-ip", at, "--agent-address", at)
	c.old = strings.HasPrefix(c.helm("version", "--template", "{{.Version}}"), "v3")
	return c
}

// try runs Helm.
func (c *cluster) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute*harness.SlowFactor())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Getenv("MONOPOD_HELM"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "HOME="+c.Dir, "HELM_NAMESPACE=shop",
		"HELM_CACHE_HOME="+c.Dir+"/helm/cache", "HELM_CONFIG_HOME="+c.Dir+"/helm/config", "HELM_DATA_HOME="+c.Dir+"/helm/data")
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, errout.String())
	}
	return out.String(), nil
}

func (c *cluster) helm(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		pods, _ := c.TryKubectl("", "get", "pods,events", "-A")
		c.t.Fatalf("%v\n%s\n%s", err, out, pods)
	}
	return out
}

// install and upgrade wait until everything is ready, jobs too.
func (c *cluster) install(release, chart string, args ...string) string {
	c.t.Helper()
	return c.helm(slices.Concat([]string{"install", release, chart, "--create-namespace", "--wait", "--wait-for-jobs", "--timeout", patience}, args)...)
}

func (c *cluster) upgrade(release, chart string, args ...string) string {
	c.t.Helper()
	return c.helm(slices.Concat([]string{"upgrade", release, chart, "--wait", "--wait-for-jobs", "--timeout", patience}, args)...)
}

// orBack is the flag by which what fails is undone.
func (c *cluster) orBack() string {
	if c.old {
		return "--atomic"
	}
	return "--rollback-on-failure"
}

// expectHistory looks at how each revision of a release has ended.
func (c *cluster) expectHistory(release string, want ...string) {
	c.t.Helper()
	var revisions []struct {
		Revision int
		Status   string
	}
	raw := c.helm("history", release, "-o", "json")
	if err := json.Unmarshal([]byte(raw), &revisions); err != nil {
		c.t.Fatalf("helm history: %v\n%s", err, raw)
	}
	var got []string
	for i, r := range revisions {
		if r.Revision != i+1 {
			c.t.Errorf("%s: the history is %s", release, raw)
		}
		got = append(got, r.Status)
	}
	if !slices.Equal(got, want) {
		c.t.Errorf("%s: the revisions are %q, want %q", release, got, want)
	}
}

// expect compares what kubectl says.
func (c *cluster) expect(what, want string, args ...string) {
	c.t.Helper()
	harness.Eventually(c.t, what+": "+want, func() (bool, string) {
		got, err := c.TryKubectl("", append(args, "-n", "shop")...)
		return err == nil && strings.TrimSpace(got) == want, fmt.Sprint(got, err)
	})
}

// tested runs a release's tests and returns what they have said.
func (c *cluster) tested(release string) string {
	c.t.Helper()
	return c.helm("test", release, "--logs", "--timeout", patience)
}

// removed uninstalls a release: nothing of its chart is left.
func (c *cluster) removed(release string) {
	c.t.Helper()
	c.helm("uninstall", release, "--wait", "--timeout", patience)
	const kinds = "all,configmaps,secrets,serviceaccounts,ingresses,horizontalpodautoscalers,poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings"
	harness.Eventually(c.t, release+" is gone", func() (bool, string) {
		got := c.Kubectl("get", kinds, "-n", "shop", "-o", "name", "-l", "app.kubernetes.io/instance="+release+",app.kubernetes.io/managed-by=Helm")
		// What hooks have made is not the release's, and is the next one's to delete.
		var left []string
		for _, name := range strings.Fields(got) {
			if !strings.Contains(name, "-test-") && !strings.Contains(name, "-greet") {
				left = append(left, name)
			}
		}
		return len(left) == 0, strings.Join(left, " ")
	})
	if _, err := c.try("status", release); err == nil {
		c.t.Errorf("%s still has a status", release)
	}
}

// TestHelm: the charts, each with what it has that the others have not.
func TestHelm(t *testing.T) {
	c := start(t)
	for _, chart := range []string{"web", "store", "agents"} {
		c.helm("lint", "--strict", filepath.Join("charts", chart))
	}
	t.Run("web", func(t *testing.T) { testWeb(t, &cluster{Node: c.Node, t: t, old: c.old}) })
	t.Run("store", func(t *testing.T) { testStore(t, &cluster{Node: c.Node, t: t, old: c.old}) })
	t.Run("agents", func(t *testing.T) { testAgents(t, &cluster{Node: c.Node, t: t, old: c.old}) })
}

// testWeb: a deployment and all that stands around one.
func testWeb(t *testing.T, c *cluster) {
	const chart = "charts/web"
	served := func(want string) {
		t.Helper()
		if got := c.tested("web"); !strings.Contains(got, "<title>"+want+"</title>") {
			t.Errorf("helm test web:\n%s\nwant the page %q", got, want)
		}
	}
	c.helm("install", "web", chart, "--create-namespace", "--dry-run=server")
	c.install("web", chart)
	c.expect("ready", "2", "get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")
	served("one")
	c.expectHistory("web", "deployed")

	// Another page is another pod; an ingress and an autoscaler come, and the service's type changes.
	c.upgrade("web", chart, "--set", "content=two", "--set", "ingress.enabled=true", "--set", "autoscaling.enabled=true", "--set", "service.type=NodePort")
	served("two")
	c.expect("the ingress", "web.example", "get", "ingress", "web", "-o", "jsonpath={.spec.rules[0].host}")
	c.expect("the autoscaler sees pods", "2", "get", "hpa", "web", "-o", "jsonpath={.status.currentReplicas}")
	c.expect("the budget", "1", "get", "pdb", "web", "-o", "jsonpath={.status.disruptionsAllowed}")
	c.expect("the service", "NodePort", "get", "service", "web", "-o", "jsonpath={.spec.type}")

	// An image that is not there: Helm waits in vain and goes back by itself; the pods that were there serve all the while.
	out, err := c.try("upgrade", "web", chart, "--reuse-values", "--set", "image.tag=missing", "--set", "content=three", c.orBack(), "--timeout", impatience)
	if err == nil {
		t.Errorf("an upgrade to an image that is not there went well:\n%s", out)
	}
	served("two")
	c.expectHistory("web", "superseded", "superseded", "failed", "deployed")
	c.expect("ready", "2", "get", "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")

	c.upgrade("web", chart, "--reset-values", "--set", "service.type=LoadBalancer", "--set", "service.port=8088", "--set", "content=five")
	served("five")
	c.expect("the ingress is gone", "", "get", "ingress,hpa", "-o", "name")

	c.helm("rollback", "web", "1", "--wait", "--timeout", patience)
	served("one")
	c.expect("the service", "ClusterIP 80", "get", "service", "web", "-o", "jsonpath={.spec.type} {.spec.ports[0].port}")
	c.expectHistory("web", "superseded", "superseded", "failed", "superseded", "superseded", "deployed")
	if got := c.helm("list", "--all-namespaces", "-o", "json"); !strings.Contains(got, `"name":"web"`) || !strings.Contains(got, `"revision":"6"`) {
		t.Errorf("helm list: %s", got)
	}
	if got := c.helm("get", "manifest", "web"); !strings.Contains(got, "kind: NetworkPolicy") {
		t.Errorf("helm get manifest:\n%s", got)
	}
	c.removed("web")
}

// testStore: members of a stateful set, a secret that is kept, and hooks.
func testStore(t *testing.T, c *cluster) {
	const chart = "charts/store"
	// A hook that fails: nothing is installed, and what was made for it goes.
	if out, err := c.try("install", "store", chart, "--create-namespace", "--set", "prepare.exitCode=3", c.orBack(), "--timeout", patience); err == nil {
		t.Errorf("an installation whose hook fails went well:\n%s", out)
	}
	c.expect("no members", "", "get", "statefulsets,pods", "-o", "name", "-l", "app.kubernetes.io/name=store")
	if _, err := c.try("status", "store"); err == nil {
		t.Error("store has a status after its installation was undone")
	}

	c.install("store", chart)
	c.expect("the job after it", "1", "get", "job", "store-greet", "-o", "jsonpath={.status.succeeded}")
	c.expect("the job before it is gone", "", "get", "jobs,configmaps", "-o", "name", "-l", "app.kubernetes.io/name=store", "--field-selector", "metadata.name=store-prepare")
	password := c.Kubectl("get", "secret", "store", "-n", "shop", "-o", "jsonpath={.data.password}")

	c.upgrade("store", chart, "--set", "replicaCount=3")
	if got := c.tested("store"); !strings.Contains(got, "store-0\nstore-1\nstore-2\n") {
		t.Errorf("helm test store:\n%s", got)
	}
	c.expect("the password is the same", password, "get", "secret", "store", "-o", "jsonpath={.data.password}")
	c.expect("the budget", "2", "get", "pdb", "store", "-o", "jsonpath={.status.disruptionsAllowed}")

	// The members are changed, two at once.
	c.upgrade("store", chart, "--set", "replicaCount=2,podManagementPolicy=OrderedReady,auth.password=better")
	c.expect("members", "2 2", "get", "statefulset", "store", "-o", "jsonpath={.status.readyReplicas} {.status.replicas}")
	// What no StatefulSet may change is refused by the API server, and the release stays as it was.
	if out, err := c.try("upgrade", "store", chart, "--set", "replicaCount=2,podManagementPolicy=Parallel", "--timeout", patience); err == nil || !strings.Contains(err.Error(), "updates to statefulset spec") {
		t.Errorf("an upgrade of what cannot change: %v\n%s", err, out)
	}
	c.helm("rollback", "store", "1", "--wait", "--timeout", patience)
	c.expect("members", "1 1", "get", "statefulset", "store", "-o", "jsonpath={.status.readyReplicas} {.status.replicas}")
	c.expect("the password is the first", password, "get", "secret", "store", "-o", "jsonpath={.data.password}")
	c.expectHistory("store", "superseded", "superseded", "superseded", "failed", "deployed")
	c.removed("store")
}

// testAgents: a pod on each node, roles, jobs at times, and a schema of values.
func testAgents(t *testing.T, c *cluster) {
	const chart = "charts/agents"
	if _, err := c.try("install", "agents", chart, "--create-namespace", "--set", "interval=0"); err == nil {
		t.Error("a value that the schema forbids was taken")
	}
	c.install("agents", chart, "--set", "upstream=web.example")
	c.expect("ready", "1", "get", "daemonset", "agents", "-o", "jsonpath={.status.numberReady}")
	c.tested("agents")
	c.expect("upstream", "web.example", "get", "service", "agents-upstream", "-o", "jsonpath={.spec.externalName}")
	c.expect("the schedule", "@yearly Europe/Berlin", "get", "cronjob", "agents", "-o", "jsonpath={.spec.schedule} {.spec.timeZone}")
	c.Kubectl("create", "job", "-n", "shop", "--from=cronjob/agents", "now")
	c.Kubectl("wait", "-n", "shop", "--for=condition=Complete", "job/now", "--timeout=100s")
	c.expect("it goes with the cron job", "CronJob", "get", "job", "now", "-o", "jsonpath={.metadata.ownerReferences[0].kind}")

	c.upgrade("agents", chart, "--set", "interval=2,report.suspend=true")
	c.expect("suspended", "true", "get", "cronjob", "agents", "-o", "jsonpath={.spec.suspend}")
	c.expect("upstream is gone", "", "get", "services", "-o", "name", "-l", "app.kubernetes.io/instance=agents")
	c.expect("updated", "1 1", "get", "daemonset", "agents", "-o", "jsonpath={.status.updatedNumberScheduled} {.status.numberReady}")
	c.helm("rollback", "agents", "--wait", "--timeout", patience)
	c.expect("not suspended", "false", "get", "cronjob", "agents", "-o", "jsonpath={.spec.suspend}")
	c.expectHistory("agents", "superseded", "superseded", "deployed")
	c.removed("agents")
	c.expect("the job has gone with its cron job", "", "get", "jobs", "now", "--ignore-not-found", "-o", "name")
}
