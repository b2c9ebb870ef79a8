package escape

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
)

// cluster is a whole node, with the API, that is attacked by those who may write objects.
type cluster struct {
	*testing.T
	host *harness.Node
}

func (c *cluster) Apply(manifest string) {
	c.Helper()
	c.host.Apply(manifest)
}

func (c *cluster) Kubectl(args ...string) string {
	c.Helper()
	return c.host.Kubectl(args...)
}

func (c *cluster) TryKubectl(stdin string, args ...string) (string, error) {
	return c.host.TryKubectl(stdin, args...)
}

func startCluster(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := &cluster{t, harness.StartNode(t, harness.Options{Args: args})}
	path := filepath.Join(t.TempDir(), "base.tar")
	if err := images.WriteArchive(path, baseImage(t)); err != nil {
		t.Fatal(err)
	}
	c.host.LoadImage(path)
	return c
}

// shellPod is a pod's manifest whose container runs a script; fields are of the container, in JSON, each with a comma before it.
func shellPod(name, script, fields string) string {
	return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %[1]q, "labels": {"app": %[1]q}}, "spec": {"terminationGracePeriodSeconds": 0,
		"containers": [{"name": "c", "image": %q, "command": ["sh", "-c", %q]%s}]}}`, name, base, script, fields)
}

// in runs a script in a pod, and returns what it prints.
func (c *cluster) in(pod, script string) string {
	c.Helper()
	out, _ := c.TryKubectl("", "exec", pod, "--", "sh", "-c", script)
	return strings.TrimSpace(out)
}

func (c *cluster) get(what, path string) string {
	c.Helper()
	return c.Kubectl("get", what, "-o", "jsonpath="+path)
}

// TestCVE2020_8554: who may write services names others' addresses in them: a name server of the internet, the node, its API and its agent, another pod, the
// address of another service. What this machine and its pods send there would come to the attacker's pod.
//
// The attacker would have won if the host, or another pod, got his answer at one of these addresses, or if the API could not be spoken to any more.
func TestCVE2020_8554(t *testing.T) {
	notShort(t)
	c := startCluster(t)
	c.Apply(shellPod("evil", "exec /attack answer", ""))
	c.Apply(shellPod("victim", "sleep 3600", ""))
	c.Kubectl("wait", "--for=condition=Ready", "pod/evil", "pod/victim", "--timeout=60s")
	api, err := url.Parse(c.Kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"))
	if err != nil {
		t.Fatal(err)
	}
	node := c.get("node/"+c.host.Name, `{.status.addresses[?(@.type=="InternalIP")].address}`)
	agent := c.get("node/"+c.host.Name, "{.status.daemonEndpoints.kubeletEndpoint.Port}")
	victims := []string{"198.51.100.7", node, c.get("pod/victim", "{.status.podIP}"), c.get("svc/kubernetes", "{.spec.clusterIP}"), c.in("victim", "ip route | awk '/default/ {print $3}'")}
	ports := []string{"53", "22", api.Port(), agent}
	var list []string
	for i, port := range ports {
		list = append(list, fmt.Sprintf(`{"name": "t%d", "port": %s, "targetPort": 8080}`, i, port))
	}
	for _, port := range ports[:1] {
		list = append(list, fmt.Sprintf(`{"name": "u%s", "port": %s, "targetPort": 8080, "protocol": "UDP"}`, port, port))
	}
	service := func(name, more string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": %q}, "spec": {"selector": {"app": "evil"}, "ports": [%s]%s}}`, name, strings.Join(list, ", "), more)
	}
	c.Apply(service("honest", ""))
	var refused []string
	for i, at := range victims {
		if _, err := c.TryKubectl(service(fmt.Sprintf("external%d", i), fmt.Sprintf(`, "externalIPs": [%q]`, at)), "apply", "-f", "-"); err != nil {
			refused = append(refused, at)
		}
	}
	c.Logf("refused by the API: %q", refused)
	// By the status, which is not for who may edit a namespace.
	c.Kubectl("create", "serviceaccount", "mallory")
	c.Kubectl("create", "rolebinding", "mallory", "--clusterrole=edit", "--serviceaccount=default:mallory")
	c.Apply(service("balanced", `, "type": "LoadBalancer", "loadBalancerClass": "example.com/none"`))
	for _, at := range victims {
		status := fmt.Sprintf(`{"status": {"loadBalancer": {"ingress": [{"ip": %q}]}}}`, at)
		if out, err := c.TryKubectl("", "patch", "service", "balanced", "--subresource=status", "--type=merge", "-p", status, "--as=system:serviceaccount:default:mallory"); err == nil {
			t.Errorf("who may edit a namespace has written the status of a service: %s", out)
		}
	}
	// Once the attacker's pod answers at an address of its own, whatever would lead there does.
	honest := c.get("svc/honest", "{.spec.clusterIP}")
	harness.Eventually(t, "the attacker's pod answers at its own service", func() (bool, string) {
		out := c.in("victim", "nc -w 2 "+honest+" 22 </dev/null")
		return out == "EVIL", out
	})
	var script strings.Builder
	var wg sync.WaitGroup
	for _, at := range victims {
		for _, port := range ports {
			fmt.Fprintf(&script, "(echo TCP %[1]s %[2]s $(nc -w 1 %[1]s %[2]s </dev/null 2>/dev/null)) & ", at, port)
			wg.Go(func() {
				if out := tcpAnswer(net.JoinHostPort(at, port)); strings.Contains(out, "EVIL") {
					t.Errorf("the host that connects to %s port %s gets the attacker's answer", at, port)
				}
			})
		}
		fmt.Fprintf(&script, "(echo UDP %[1]s 53 $(echo x | nc -u -w 1 %[1]s 53 2>/dev/null)) & ", at)
	}
	answers := c.in("victim", script.String()+"wait")
	if n := strings.Count(answers, "\n") + 1; n != len(victims)*(len(ports)+1) {
		t.Errorf("the pod has asked %d times: %q", n, answers)
	}
	for line := range strings.Lines(answers) {
		if strings.Contains(line, "EVIL") {
			t.Errorf("a pod gets the attacker's answer: %s", line)
		}
	}
	wg.Wait()
	for what, port := range map[string]string{"API": api.Port(), "agent": agent} {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second * harness.SlowFactor()}, "tcp", net.JoinHostPort("127.0.0.1", port), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Errorf("the %s is not spoken to any more: %v", what, err)
			continue
		}
		conn.Close()
	}
}

// tcpAnswer is what is said first to who connects.
func tcpAnswer(at string) string {
	conn, err := net.DialTimeout("tcp", at, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // who waits to be spoken to is no attacker
	buf := make([]byte, 100)
	n, _ := conn.Read(buf)
	return string(buf[:n])
}

// TestCVE2020_8557: a container fills the node's disk by writing to what the node has mounted for it, /etc/hosts and the file of its termination message among
// them, which nobody counts.
//
// The attacker would have won if he was not evicted for more than he may have, in whichever of these files it is. One in memory has room for what shared memory
// has, which counts as the container's.
func TestCVE2020_8557(t *testing.T) {
	notShort(t) // the node measures once a minute; test/e2e tries the same beside other pods that wait for that
	c := startCluster(t)
	paths := []string{"/etc/hosts", "/dev/termination-log", "/etc/hostname", "/etc/resolv.conf", "/dev/shm/f", "/dev/f", "/run/f"}
	for i, path := range paths {
		// The last words of the writer are how much there was room for.
		c.Apply(shellPod(fmt.Sprintf("greedy%d", i), "dd if=/dev/zero bs=64k count=1600 of="+path+" 2>/dev/null; wc -c < "+path+"; exec sleep 3600",
			`, "resources": {"limits": {"ephemeral-storage": "2Mi", "memory": "512Mi"}}`))
	}
	for i, path := range paths {
		name := fmt.Sprintf("greedy%d", i)
		harness.Eventually(t, "who writes to "+path+" is evicted, or had no room", func() (bool, string) {
			if reason := c.get("pod/"+name, "{.status.reason}"); reason == "Evicted" {
				return true, ""
			}
			out, err := c.TryKubectl("", "logs", name)
			var bytes int
			if _, scan := fmt.Sscan(out, &bytes); err != nil || scan != nil {
				return false, fmt.Sprintf("%s, %v", out, err)
			}
			return bytes <= 65<<20, fmt.Sprintf("there was room for %d bytes", bytes) // memory, which is the pod's
		})
	}
	if got := c.get("node/"+c.host.Name, `{.status.conditions[?(@.type=="Ready")].status}`); got != "True" {
		t.Errorf("the node is ready: %s", got)
	}
}

// answer says EVIL to everybody who connects, or sends something, to the port 8080.
func answer([]string) error {
	l, err := net.Listen("tcp", ":8080")
	if err != nil {
		return err
	}
	u, err := net.ListenPacket("udp", ":8080")
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 100)
		for {
			if _, from, err := u.ReadFrom(buf); err == nil {
				_, _ = u.WriteTo([]byte("EVIL\n"), from)
			}
		}
	}()
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		_, _ = conn.Write([]byte("EVIL\n"))
		conn.Close()
	}
}
