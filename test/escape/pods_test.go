package escape

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"monopod.dev/monopod/test/harness"
)

// TestHostilePods: pods do what they can to the node that runs them, all beside each other on one node: they leave what is hard to remove, say last words that
// are no text, write a line without an end, ask for the node's own ports, put links where other volumes are to be mounted, and are as large as the API lets them be.
//
// The attacker would have won if a pod could not be deleted, if the host had what it did not have before, if the node's memory grew by what a pod wrote, if the
// node's own ports led to a pod, if its agent wrote statuses without end, or if another pod did not start as ever afterwards.
func TestHostilePods(t *testing.T) {
	notShort(t)
	api, agent := freePort(t), freePort(t)
	c := startCluster(t, "--api-port", api, "--agent-port", agent)
	for name, attack := range map[string]func(c *cluster){
		"leaves": (*cluster).leaves, "last words": (*cluster).lastWords, "log": (*cluster).endlessLine, "links": (*cluster).nestedLinks, "large": (*cluster).large,
		"ports": func(sub *cluster) { sub.ownPorts(api, agent) },
	} {
		c.Run(name, func(t *testing.T) {
			t.Parallel()
			attack(&cluster{t, c.host})
		})
	}
}

// freePort is a port of this machine's that nobody has.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

// ordinary starts a pod, and deletes it.
func (c *cluster) ordinary(name string) {
	c.Helper()
	begin := time.Now()
	c.Apply(shellPod(name, "exec sleep 3600", ""))
	c.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	c.gone(name)
	if took := time.Since(begin); took > 3*bound() {
		c.Errorf("an ordinary pod has taken %v to come and go", took)
	}
}

// gone deletes pods, which must go.
func (c *cluster) gone(names ...string) {
	c.Helper()
	c.Kubectl(append([]string{"delete", "pod", "--wait=false"}, names...)...)
	for _, name := range names {
		harness.Eventually(c, "the pod "+name+" is gone", func() (bool, string) {
			out, err := c.TryKubectl("", "get", "pod", name, "-o", "yaml")
			return err != nil && strings.Contains(err.Error(), "NotFound"), out
		})
	}
}

// withVolume adds an emptyDir to a pod's manifest, which its containers have at /v.
func withVolume(manifest string) string {
	return strings.NewReplacer(`"containers": [`, `"volumes": [{"name": "v", "emptyDir": {}}], "containers": [`,
		`"name": "c",`, `"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}],`).Replace(manifest)
}

// leaves leaves in the pod's volume, and in the container's root, what whoever removes it by names, or opens what is there, does not come to an end with.
func (c *cluster) leaves() {
	scripts := map[string]string{
		"deep": "/attack litter deep " + itoa(rounds(20_000)),
		"long": "/attack litter long 60",
		"many": "/attack litter many " + itoa(rounds(100_000)),
		"hard": "/attack litter hard " + itoa(rounds(10_000)),
		"kinds": `mkfifo fifo; mknod null c 1 3; mknod kmsg c 1 11; mknod loop b 7 0; /attack litter socket 1; mkdir shut; touch shut/f; chmod 000 shut; mkdir "$(printf 'new\nline')"; touch "$(printf '\377\376')" -- -rf '*' ' ' "$(printf '\033[2J')"
			ln -s / root; ln -s loop2 loop2; ln -s /proc/self/fd/0 fd; mkdir -p ..data; touch .wh.x; ln fifo fifo2; true`,
	}
	var names []string
	for what, script := range scripts {
		names = append(names, "leaves-"+what)
		c.Apply(withVolume(shellPod("leaves-"+what, fmt.Sprintf("mkdir /r; for d in /v /r; do cd $d; (%s) || echo failed; done; echo made; exec sleep 3600", script), "")))
	}
	for _, name := range names {
		harness.Eventually(c, name+" has done it", func() (bool, string) {
			out, err := c.TryKubectl("", "logs", name)
			return strings.Contains(out, "made\n"), fmt.Sprint(out, err)
		})
		if out := c.Kubectl("logs", name); strings.Contains(out, "failed") {
			c.Errorf("%s could not: %s", name, out)
		}
	}
	c.gone(names...)
	harness.Eventually(c, "nothing is left of the pods on the disk", func() (bool, string) {
		left, err := filepath.Glob(filepath.Join(c.host.Dir, "data", "*", "pods", "*", "volumes", "v"))
		return err == nil && len(left) == 0, fmt.Sprint(left, err)
	})
	c.ordinary("after-leaves")
}

// lastWords are termination messages that are no text, in the file and at the end of a log, larger than what is kept, and files that grow after the end.
func (c *cluster) lastWords() {
	for name, how := range map[string][2]string{
		"binary":   {"head -c 8192 /dev/urandom > /dev/termination-log; exit 1", "File"},
		"controls": {`printf '\000\001\033[2J\377\r\n%s' "$(seq 2000)" > /dev/termination-log; exit 1`, "File"},
		"log":      {"head -c 8192 /dev/urandom; exit 1", "FallbackToLogsOnError"},
		"sparse":   {"truncate -s 1T /dev/termination-log || truncate -s 1G /dev/termination-log; exit 1", "File"},
	} {
		name = "words-" + name
		pod := shellPod(name, how[0], fmt.Sprintf(`, "terminationMessagePolicy": %q`, how[1]))
		c.Apply(strings.Replace(pod, `"spec": {`, `"spec": {"restartPolicy": "Never", `, 1))
		c.Kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/"+name, "--timeout=60s")
		var p corev1.Pod
		raw := c.Kubectl("get", "pod", name, "-o", "json")
		if err := json.Unmarshal([]byte(raw), &p); err != nil {
			c.Fatal(err)
		}
		if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 1 || len(end.Message) > 3*4096 || !utf8.ValidString(end.Message) {
			c.Errorf("%s has ended with %+v", name, end)
		}
		before := p.ResourceVersion
		c.ordinary("after-" + name) // in which time the agent would have written again
		if after := c.get("pod/"+name, "{.metadata.resourceVersion}"); after != before {
			c.Errorf("the status of %s is written again and again: %s, then %s", name, before, after)
		}
		c.gone(name)
	}
}

// endlessLine writes a line without an end, and has it read in all ways.
func (c *cluster) endlessLine() {
	size := 256 << 20
	if short() {
		size = 48 << 20
	}
	c.Apply(shellPod("line", fmt.Sprintf("head -c %d /dev/zero | tr '\\\\0' x; exec sleep 3600", size), ""))
	c.Kubectl("wait", "--for=condition=Ready", "pod/line", "--timeout=60s")
	before := peakOf(c.T, c.host.PID())
	for _, args := range [][]string{{"--tail=1", "--limit-bytes=1000"}, {"--tail=2", "--timestamps", "--limit-bytes=1000"}, {"--since=1s", "--limit-bytes=1000"}, {"--limit-bytes=1000"}} {
		if out := c.Kubectl(append([]string{"logs", "line"}, args...)...); len(out) > 1000 {
			c.Errorf("logs %q says %d bytes", args, len(out))
		}
	}
	if grown := peakNow(c.T, c.host.PID()) - before; grown > int64(size)/2 && !short() {
		c.Errorf("the node's memory grew by %d bytes for a line of %d", grown, size)
	}
	c.gone("line")
}

// nestedLinks put links to the host where other volumes are to be mounted below: in a volume that this container has read-only, and in one that it may write.
func (c *cluster) nestedLinks() {
	outside, before := hostDirectory(c.T, "f")
	c.Apply(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "nested"}, "data": {"k": "of the map"}}`)
	var names []string
	for i, link := range []string{outside, "../../../../../../../../../.." + outside, "/proc/1/root" + outside, "/proc/self/cwd", "..", "/v"} {
		for _, readOnly := range []bool{true, false} {
			name := fmt.Sprintf("nested-%d-%v", i, readOnly)
			names = append(names, name)
			c.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %[1]q}, "spec": {"terminationGracePeriodSeconds": 0,
				"volumes": [{"name": "v", "emptyDir": {}}, {"name": "m", "configMap": {"name": "nested"}}, {"name": "e", "emptyDir": {}}],
				"initContainers": [{"name": "i", "image": %[2]q, "command": ["sh", "-c", "ln -s %[3]s /v/link && ln -s %[3]s/f /v/file"], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
				"containers": [{"name": "c", "image": %[2]q, "command": ["sh", "-c", "echo evil > /v/link/made/evil; exec sleep 3600"], "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": %[4]v},
					{"name": "m", "mountPath": "/v/link/map"}, {"name": "e", "mountPath": "/v/link/made"}, {"name": "m", "mountPath": "/v/file", "subPath": "k"}, {"name": "v", "mountPath": "/part", "subPath": "link"}]}]}}`,
				name, base, link, readOnly))
		}
	}
	for _, name := range names {
		harness.Eventually(c, name+" runs, or is told why not", func() (bool, string) {
			out := c.get("pod/"+name, "{.status.containerStatuses[0].state}")
			return strings.Contains(out, "running") || strings.Contains(out, "Error") || strings.Contains(out, "terminated"), out
		})
	}
	if now := namesIn(c.T, outside); !slices.Equal(now, before) {
		c.Errorf("the host's folder had %q and has %q", before, now)
	}
	if raw, err := os.ReadFile(filepath.Join(outside, "f")); err != nil || string(raw) != "host" {
		c.Errorf("the host's file has %q, %v", raw, err)
	}
	c.gone(names...)
}

// large are pods with as much as the API takes: annotations, variables, arguments, names.
func (c *cluster) large() {
	long := strings.Repeat("x", 120<<10)
	var env []string
	for i := range 8 {
		env = append(env, fmt.Sprintf(`{"name": "E%d", "value": %q}`, i, long))
	}
	pods := []string{
		strings.Replace(shellPod("large-annotations", "exec sleep 3600", ""), `"labels"`, fmt.Sprintf(`"annotations": {"a": %q, "b": %q}, "labels"`, long, long), 1),
		shellPod("large-env", "exec sleep 3600", `, "env": [`+strings.Join(env, ", ")+`]`),
		shellPod("large-args", "exec sleep 3600", fmt.Sprintf(`, "args": [%q, %q, %q]`, long, long, long)),
		shellPod("large-arg", "exec sleep 3600", fmt.Sprintf(`, "args": [%q]`, strings.Repeat("y", 900<<10))), // more than execve takes
	}
	var names []string
	for _, manifest := range pods {
		// In JSON as it is: kubectl apply would write all of it into an annotation once more.
		if _, err := c.TryKubectl(manifest, "create", "-f", "-"); err != nil {
			c.Logf("refused: %.300v", err)
			continue
		}
		var p corev1.Pod
		if err := yaml.Unmarshal([]byte(manifest), &p); err != nil {
			c.Fatal(err)
		}
		names = append(names, p.Name)
	}
	for _, name := range names {
		harness.Eventually(c, name+" runs, or is told why not", func() (bool, string) {
			out := c.get("pod/"+name, "{.status.containerStatuses[0].state}")
			return strings.Contains(out, "running") || strings.Contains(out, "Error") || strings.Contains(out, "terminated") || strings.Contains(out, "BackOff"), out
		})
		if out := c.get("pod/"+name, "{.status}"); len(out) > 64<<10 {
			c.Errorf("the status of %s has %d bytes", name, len(out))
		}
	}
	c.gone(names...)
}

// ownPorts asks for the node's own ports in every way that there is.
func (c *cluster) ownPorts(api, agent string) {
	node := c.get("node/"+c.host.Name, `{.status.addresses[?(@.type=="InternalIP")].address}`)
	var names []string
	for _, port := range []string{api, agent} {
		for i, at := range []string{"", "0.0.0.0", "127.0.0.1", node, "::", "127.0.0.2"} {
			name := fmt.Sprintf("port-%s-%d", port, i)
			manifest := shellPod(name, "exec /attack answer", fmt.Sprintf(`, "ports": [{"containerPort": 8080, "hostPort": %s, "hostIP": %q}, {"containerPort": 8080, "protocol": "UDP", "hostPort": %s}]`, port, at, port))
			if _, err := c.TryKubectl(manifest, "apply", "-f", "-"); err != nil {
				c.Logf("%s: %v", name, err)
				continue
			}
			names = append(names, name)
			// By a node's name nobody looks for a place.
			direct := strings.Replace(strings.Replace(manifest, `"spec": {`, fmt.Sprintf(`"spec": {"nodeName": %q, `, c.host.Name), 1), name, name+"-direct", 2)
			if _, err := c.TryKubectl(direct, "apply", "-f", "-"); err == nil {
				names = append(names, name+"-direct")
			}
		}
	}
	for _, name := range names {
		harness.Eventually(c, name+" is refused", func() (bool, string) {
			out := c.get("pod/"+name, "{.status}")
			return strings.Contains(out, "Unschedulable") || strings.Contains(out, `"phase":"Failed"`), out
		})
	}
	for _, port := range []string{api, agent} {
		for _, at := range []string{"127.0.0.1", "127.0.0.2", node} {
			if out := tcpAnswer(net.JoinHostPort(at, port)); strings.Contains(out, "EVIL") {
				c.Errorf("%s port %s of the node leads to a pod", at, port)
			}
		}
	}
	c.gone(names...)
}

// litter makes what is hard to remove in its working directory.
func litter(args []string) error {
	many, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	name := strings.Repeat("n", 250)
	for i := range many {
		switch args[0] {
		case "deep": // by names of one letter, from above: the way there is never long
			if i == 0 {
				err = os.Mkdir("a", 0o755)
			}
			err = errors.Join(err, os.Mkdir("b", 0o755), os.Rename("a", "b/a"), os.Rename("b", "a"))
		case "long": // from within: the whole path is longer than any that can be said
			err = errors.Join(unix.Mkdir(name, 0o755), unix.Chdir(name))
		case "many":
			err = os.WriteFile(fmt.Sprintf("f%d", i), nil, 0o644)
		case "socket":
			fd, serr := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			err = errors.Join(serr, unix.Bind(fd, &unix.SockaddrUnix{Name: "socket"}))
		case "hard":
			if err = os.WriteFile("f", nil, 0o644); err == nil {
				err = os.Link("f", fmt.Sprintf("l%d", i))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
