package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/vm/machine"
)

// prometheus is a server of Debian's package, which is unpacked and not installed: its service would begin to listen on the host.
type prometheus struct {
	*testing.T
	url string
}

var listens = regexp.MustCompile(`Listening on"? address=(?:\[::\]|127\.0\.0\.1):(\d+)`)

// startPrometheus starts a server that ends with the test, and waits until it listens.
func startPrometheus(t *testing.T, config string) *prometheus {
	t.Helper()
	program := os.Getenv("MONOPOD_PROMETHEUS") // is set where Debian's packages cannot be had
	if program == "" {
		unpacked, err := machine.Unpacked(t.Context(), machine.DefaultCache(), "prometheus", "prometheus")
		if err != nil {
			t.Fatal(err)
		}
		program = filepath.Join(unpacked, "usr", "bin", "prometheus")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program,
		"--config.file", file, "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:0")
	cmd.Dir = dir
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	port, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if m := listens.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case port <- m[1]:
				default:
				}
			}
			fmt.Fprintln(t.Output(), lines.Text())
		}
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Log(err)
		}
		<-ended
		_ = cmd.Wait() // it was killed
	})
	select {
	case p := <-port:
		return &prometheus{T: t, url: "http://127.0.0.1:" + p}
	case <-ended:
		t.Fatal("prometheus ended")
	case <-time.After(time.Minute):
		t.Fatal("prometheus does not listen")
	}
	return nil
}

// get asks Prometheus' API.
func (p *prometheus) get(path string, query url.Values, data any) error {
	resp, err := http.Get(p.url + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %s %s: %w", path, resp.Status, answer.Error, err)
	}
	return nil
}

// awaitUp waits until that many targets are up.
func (p *prometheus) awaitUp(want int) {
	p.Helper()
	harness.Eventually(p, "all targets are up", func() (bool, string) {
		var targets struct {
			Active []struct{ ScrapeURL, Health, LastError string } `json:"activeTargets"`
		}
		if err := p.get("/api/v1/targets", url.Values{"state": {"active"}}, &targets); err != nil {
			return false, err.Error()
		}
		up := 0
		for _, target := range targets.Active {
			if target.Health == "up" {
				up++
			}
		}
		return up == want, fmt.Sprint(targets)
	})
}

// awaitValue waits until a query answers with at least one value, none of them 0.
func (p *prometheus) awaitValue(query string) {
	p.Helper()
	harness.Eventually(p, query+" answers", func() (bool, string) {
		var vector struct {
			Result []struct {
				Value [2]any
			}
		}
		if err := p.get("/api/v1/query", url.Values{"query": {query}}, &vector); err != nil {
			return false, err.Error()
		}
		for _, r := range vector.Result {
			if r.Value[1] == "0" {
				return false, fmt.Sprint(vector)
			}
		}
		return len(vector.Result) > 0, fmt.Sprint(vector)
	})
}

// scrapeConfig scrapes all that an agent tells, with a bearer token.
func scrapeConfig(ca, token, target string) string {
	var jobs strings.Builder
	for job, path := range map[string]string{"kubelet": "/metrics", "cadvisor": "/metrics/cadvisor", "resource": "/metrics/resource", "probes": "/metrics/probes"} {
		fmt.Fprintf(&jobs, "- {job_name: %s, scheme: https, metrics_path: %s, authorization: {credentials: %q}, tls_config: {ca_file: %q}, static_configs: [{targets: [%q]}]}\n",
			job, path, token, ca, target)
	}
	return "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n" + jobs.String()
}

// TestPrometheus: Prometheus scrapes a node's agent as its users set it up, with the token of a service account that has one right.
func TestPrometheus(t *testing.T) {
	n := workload(t)
	n.Apply(pod("used", "while :; do :; done", `"terminationGracePeriodSeconds": 1,`))
	n.Kubectl("wait", "--for=condition=Ready", "pod/used", "--timeout=60s")
	n.Kubectl("create", "serviceaccount", "prometheus")
	n.Kubectl("create", "clusterrole", "scrape", "--verb=get", "--resource=nodes/metrics")
	n.Kubectl("create", "clusterrolebinding", "scrape", "--clusterrole=scrape", "--serviceaccount=default:prometheus")
	token := strings.TrimSpace(n.Kubectl("create", "token", "prometheus"))
	port := n.Kubectl("get", "node", n.Name, "-o", "jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}")
	// Nobody listens in the pod; but what is refused has been received. By itself a pod may receive nothing for as long as it is there.
	if c, err := net.DialTimeout("tcp", net.JoinHostPort(n.Kubectl("get", "pod", "used", "-o", "jsonpath={.status.podIP}"), "9"), time.Minute); err == nil {
		c.Close()
	}

	p := startPrometheus(t, scrapeConfig(filepath.Join(n.Dir, "data", "pki", "ca.crt"), token, "127.0.0.1:"+port))
	p.awaitUp(4)
	const ours = `namespace="default",pod="used",container="c"`
	for _, query := range []string{
		`container_memory_working_set_bytes{job="cadvisor",` + ours + `}`,
		`container_memory_working_set_bytes{job="resource",` + ours + `}`,
		`rate(container_cpu_usage_seconds_total{job="cadvisor",` + ours + `}[10s])`,
		`rate(container_cpu_usage_seconds_total{job="resource",` + ours + `}[10s])`,
		`container_network_receive_bytes_total{job="cadvisor",namespace="default",pod="used",interface="eth0"}`,
		`rate(node_cpu_usage_seconds_total[10s])`, `kubelet_running_pods`, `kubelet_runtime_operations_total{operation_type="run_podsandbox"}`,
	} {
		p.awaitValue(query)
	}
	// What a kubelet's other users read of the same.
	harness.Eventually(t, "kubectl top tells of the pod", func() (bool, string) {
		out, err := n.TryKubectl("", "top", "pod", "used", "--containers", "--no-headers")
		return err == nil && strings.HasPrefix(out, "used") && !strings.Contains(out, " 0m "), out
	})
	if out := n.Kubectl("top", "node", "--no-headers"); !strings.HasPrefix(out, n.Name) || strings.Contains(out, "unknown") {
		t.Errorf("kubectl top node: %s", out)
	}
	summary := n.Kubectl("get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/stats/summary")
	if !strings.Contains(summary, `"name":"used"`) || !strings.Contains(summary, `"name":"pods"`) {
		t.Errorf("/stats/summary: %s", summary)
	}
	n.Kubectl("delete", "pod", "used", "--timeout=60s")
}
