package e2e

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/test/harness"
)

// testSelf is a pod that asks about itself, in all the ways there are, and has its name, its hosts and its end its own way.
func testSelf(t *testing.T, n *harness.Node) {
	out := t.TempDir()
	n.Apply(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"k": "from the map\n"}}`)
	n.Apply(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"}, "stringData": {"k": "from the secret\n"}}`)
	script, _ := json.Marshal(`trap 'echo USR1 > /out/signal; exit 0' USR1
hostname
echo cpu $CPU, memory $MEMORY, other $OTHER
cat /info/labels; echo; cat /info/cpu; echo
cat /all/conf/a /all/secret; cat /all/name; echo
head -n 1 /etc/hosts; grep example.com /etc/hosts
echo that is all
while :; do sleep 1 & wait $!; done`)
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "self", "labels": {"color": "red"}}, "spec": {
		"os": {"name": "linux"}, "hostnameOverride": "db.example.org", "readinessGates": [{"conditionType": "example.com/lb"}],
		"hostAliases": [{"ip": "10.1.2.3", "hostnames": ["a.example.com", "b.example.com"]}],
		"volumes": [
			{"name": "out", "hostPath": {"path": "` + out + `"}},
			{"name": "info", "downwardAPI": {"items": [
				{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
				{"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "requests.cpu", "divisor": "1m"}}]}},
			{"name": "all", "projected": {"sources": [
				{"configMap": {"name": "conf", "items": [{"key": "k", "path": "conf/a"}]}},
				{"secret": {"name": "secret", "items": [{"key": "k", "path": "secret"}]}},
				{"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}],
		"initContainers": [{"name": "first", "image": "` + busybox + `", "command": ["true"], "resources": {"requests": {"cpu": "30m"}}}],
		"containers": [{"name": "c", "image": "` + busybox + `", "command": ["sh", "-c", ` + string(script) + `],
			"lifecycle": {"stopSignal": "SIGUSR1"},
			"resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "20m"}},
			"env": [
				{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}}},
				{"name": "MEMORY", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
				{"name": "OTHER", "valueFrom": {"resourceFieldRef": {"containerName": "first", "resource": "requests.cpu", "divisor": "1m"}}}],
			"volumeMounts": [{"name": "out", "mountPath": "/out"}, {"name": "info", "mountPath": "/info"}, {"name": "all", "mountPath": "/all"}]}]}}`)
	want := `db.example.org
cpu 20, memory 64, other 30
color="red"
20
from the map
from the secret
self
# Kubernetes-managed hosts file.
10.1.2.3	a.example.com	b.example.com
that is all
`
	harness.Eventually(t, "the pod has said all", func() (bool, string) {
		log, err := n.TryKubectl("", "logs", "self", "-c", "c")
		return err == nil && strings.Contains(log, "that is all"), log
	})
	if log := n.Kubectl("logs", "self", "-c", "c"); log != want {
		t.Errorf("the pod says\n%s, want\n%s", log, want)
	}

	// It is ready when whoever sees to the gate says so.
	n.Kubectl("wait", "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=ReadinessGatesNotReady", "pod/self", "--timeout=60s")
	if row := n.Kubectl("get", "pod", "self", "-o", "wide"); !strings.HasSuffix(strings.TrimSpace(row), "0/1") {
		t.Errorf("the gate is not in\n%s", row)
	}
	n.Kubectl("patch", "pod", "self", "--subresource=status", "-p", `{"status": {"conditions": [{"type": "example.com/lb", "status": "True"}]}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/self", "--timeout=60s")

	// What a volume shows of the pod follows it.
	n.Kubectl("label", "pod", "self", "--overwrite", "color=blue")
	harness.Eventually(t, "the label is in the file", func() (bool, string) {
		text := n.Kubectl("exec", "self", "-c", "c", "--", "cat", "/info/labels")
		return text == `color="blue"`, text
	})

	n.Kubectl("delete", "pod", "self")
	if text, err := os.ReadFile(filepath.Join(out, "signal")); err != nil || string(text) != "USR1\n" {
		t.Errorf("the pod was ended by %q, %v, want by SIGUSR1", text, err)
	}
}

// testPropagation: what the host mounts below a volume later is seen in the container that asks for it.
// testTogether is a pod whose containers see each other's processes and the host's IPC, one that is talked to on its standard input, one with a terminal.
func testTogether(t *testing.T, n *harness.Node) {
	const wide = `"image": "` + busybox + `"`
	n.Apply(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "together"}, "spec": {
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "shareProcessNamespace": true, "hostIPC": true,
		"securityContext": {"runAsUser": 1234, "runAsGroup": 2345},
		"volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"audience": "vault.example.com", "path": "t"}}]}}],
		"containers": [
			{"name": "listens", ` + wide + `, "stdin": true, "stdinOnce": true, "workingDir": "/var/tmp", "command": ["sh", "-c", "pwd; cat; echo heard all"]},
			{"name": "screen", ` + wide + `, "tty": true, "command": ["sh", "-c", "tty; id -g; exec sleep 3600"], "securityContext": {"runAsGroup": 3456},
			 "volumeMounts": [{"name": "token", "mountPath": "/token"}]},
			{"name": "open", ` + wide + `, "stdin": true, "command": ["cat"]}]}}`)
	n.Kubectl("wait", "--for=condition=Ready", "pod/together", "--timeout=60s")
	sees := func(script string) string {
		return strings.TrimSpace(n.Kubectl("exec", "together", "-c", "screen", "--", "sh", "-c", script))
	}
	if got := sees("id -u; id -g; cat /proc/*/comm | sort -u | tr '\\n' ' '"); !strings.HasPrefix(got, "1234\n3456\n") || !strings.Contains(got, "cat ") || !strings.Contains(got, "sleep") {
		t.Errorf("user, group and processes: %q", got)
	}
	host, err := os.Readlink("/proc/self/ns/ipc")
	if err != nil {
		t.Fatal(err)
	}
	if got := sees("readlink /proc/self/ns/ipc"); !strings.HasPrefix(got, host) {
		t.Errorf("the pod's IPC is %q, the host's %q", got, host)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(sees("cat /token/t"), ".")[1])
	if err != nil || !strings.Contains(string(claims), `"aud":["vault.example.com"]`) {
		t.Errorf("the token says %s, %v", claims, err)
	}

	// Who is attached once, and goes, ends the input.
	if out, err := n.TryKubectl("one\ntwo\n", "attach", "-i", "-q", "together", "-c", "listens"); err != nil {
		t.Errorf("attach: %q, %v", out, err)
	}
	n.Kubectl("wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0", "pod/together", "--timeout=60s")
	if got := n.Kubectl("logs", "together", "-c", "listens"); got != "/var/tmp\none\ntwo\nheard all\n" {
		t.Errorf("it has heard %q", got)
	}
	// Where the input stays open for others, who has said all goes, and the program goes on.
	for _, line := range []string{"one\n", "two\n"} {
		if out, err := n.TryKubectl(line, "attach", "-i", "-q", "together", "-c", "open"); err != nil {
			t.Errorf("attach to an input that stays open: %q, %v", out, err)
		}
	}
	harness.Eventually(t, "it has heard both", func() (bool, string) {
		got := n.Kubectl("logs", "together", "-c", "open")
		return got == "one\ntwo\n", got
	})
	harness.Eventually(t, "the other one says what its terminal is", func() (bool, string) {
		got := n.Kubectl("logs", "together", "-c", "screen")
		return got == "/dev/pts/0\r\n3456\r\n", got
	})
	n.Kubectl("delete", "pod", "together", "--timeout=60s")
}

func testPropagation(t *testing.T, n *harness.Node) {
	dir := t.TempDir()
	mount := func(path string, flags uintptr) {
		t.Helper()
		kind := "tmpfs"
		if flags != 0 {
			kind = ""
		}
		if err := unix.Mount(kind, path, kind, flags, ""); err != nil {
			t.Fatal(err)
		}
		if flags == 0 {
			t.Cleanup(func() {
				if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
		}
	}
	mount(dir, 0)
	mount(dir, unix.MS_SHARED)
	late := filepath.Join(dir, "late")
	if err := os.Mkdir(late, 0o755); err != nil {
		t.Fatal(err)
	}
	manifest := func(name, mode string) string {
		return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}, "spec": {"terminationGracePeriodSeconds": 0,
			"volumes": [{"name": "host", "hostPath": {"path": "` + dir + `"}}],
			"containers": [{"name": "c", "image": "` + busybox + `", "command": ["sleep", "3600"],
				"volumeMounts": [{"name": "host", "mountPath": "/host", "mountPropagation": "` + mode + `"}]}]}}`
	}
	for name, mode := range map[string]string{"sees": "HostToContainer", "does-not": "None"} {
		n.Apply(manifest(name, mode))
		n.Kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	}
	mount(late, 0)
	if err := os.WriteFile(filepath.Join(late, "file"), []byte("late"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"sees": "file\n", "does-not": ""} {
		if got := n.Kubectl("exec", name, "--", "ls", "/host/late"); got != want {
			t.Errorf("the pod %s has %q, want %q", name, got, want)
		}
	}
	// A container that may not do so on the host does not mount there for it either.
	_, err := n.TryKubectl(manifest("mounts", "Bidirectional"), "create", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "spec.containers[0].volumeMounts[0].mountPropagation: Forbidden") {
		t.Errorf("an unprivileged container that mounts on the host: %v", err)
	}
	n.Kubectl("delete", "pod", "sees", "does-not")
}
