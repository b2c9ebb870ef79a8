package apiserver_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const debuggedYAML = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: debug, labels: {app: web}}
spec:
  nodeName: debugged
  initContainers:
  - {name: prepare, image: i:1}
  - {name: log, image: i:1, restartPolicy: Always, startupProbe: {exec: {command: [cat, /ready]}}}
  containers:
  - name: web
    image: i:1
    ports: [{name: http, containerPort: 80}]
    livenessProbe: {httpGet: {port: http}}
    readinessProbe: {tcpSocket: {port: 80}}
    lifecycle: {preStop: {sleep: {seconds: 5}}}
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes: [{name: scratch}]
`

// kubectlDebug: what kubectl debug sends, with each of its profiles and in each of its ways, is let in.
func kubectlDebug(t *testing.T, k kubectl) {
	k.run("create", "namespace", "debug")
	k.feed(debuggedYAML, "create", "-f", "-")
	debug := func(args ...string) string {
		t.Helper()
		return k.run(append([]string{"-n", "debug", "debug"}, args...)...)
	}
	pod := func(name string) (p corev1.Pod) {
		t.Helper()
		if err := json.Unmarshal([]byte(k.run("-n", "debug", "get", "pod", name, "-o", "json")), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	profiles := []string{"general", "baseline", "restricted", "netadmin", "sysadmin"}
	for _, profile := range profiles {
		debug("web", "--image=busybox:1", "--container=to-"+profile, "--profile="+profile, "--env=A=b", "--", "sh", "-c", "true")
	}
	debug("web", "--image=busybox:1", "--target=web", "--container=targets")
	custom := filepath.Join(t.TempDir(), "custom.yaml")
	if err := os.WriteFile(custom, []byte("volumeMounts: [{name: scratch, mountPath: /scratch}]\nworkingDir: /scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	debug("web", "--image=busybox:1", "--container=custom", "--custom="+custom)

	web := pod("web")
	var names []string
	for _, c := range web.Spec.EphemeralContainers {
		names = append(names, c.Name+">"+c.TargetContainerName)
		if c.ImagePullPolicy != corev1.PullIfNotPresent || c.TerminationMessagePolicy != corev1.TerminationMessageReadFile {
			t.Errorf("%s has no defaults: %+v", c.Name, c)
		}
	}
	if got, want := strings.Join(names, " "), "to-general> to-baseline> to-restricted> to-netadmin> to-sysadmin> targets>web custom>"; got != want || web.Generation != 8 {
		t.Errorf("ephemeral containers %s of generation %d, want %s of 8", got, web.Generation, want)
	}
	k.fail(`targetContainerName: Not found: "none"`, "", "-n", "debug", "debug", "web", "--image=x", "--target=none")
	k.fail(`pods "none" not found`, "", "-n", "debug", "debug", "none", "--image=x")
	k.fail("spec.ephemeralContainers: Forbidden: cannot be set on create", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"born","namespace":"debug"},
		"spec":{"containers":[{"name":"c","image":"x"}],"ephemeralContainers":[{"name":"e","image":"x"}]}}`, "create", "-f", "-")
	k.fail("may not be removed", "", "-n", "debug", "patch", "pod", "web", "--subresource=ephemeralcontainers", "--type=json",
		"-p", `[{"op":"remove","path":"/spec/ephemeralContainers/0"}]`)
	k.fail("cannot be set for an Ephemeral Container", "", "-n", "debug", "patch", "pod", "web", "--subresource=ephemeralcontainers",
		"-p", `{"spec":{"ephemeralContainers":[{"name":"p","image":"x","ports":[{"containerPort":1}]}]}}`)
	if d := k.run("-n", "debug", "describe", "pod", "web"); !strings.Contains(d, "Ephemeral Containers:\n  to-general:") || !strings.Contains(d, "Liveness:") {
		t.Errorf("describe: %s", d)
	}

	for _, profile := range profiles {
		debug("web", "--copy-to=copy-"+profile, "--image=busybox:1", "--container=to", "--profile="+profile, "--attach=false")
		if c := pod("copy-" + profile); len(c.Spec.Containers) != 2 || c.Spec.NodeName != "" || len(c.Spec.EphemeralContainers) > 0 {
			t.Errorf("the copy by %s: %+v", profile, c.Spec)
		}
	}
	debug("web", "--copy-to=same", "--set-image=*=busybox:2", "--same-node", "--keep-liveness", "--keep-init-containers", "--keep-labels", "--share-processes=false")
	if c := pod("same"); c.Spec.NodeName != "debugged" || c.Spec.Containers[0].Image != "busybox:2" || c.Spec.Containers[0].LivenessProbe == nil || c.Labels["app"] != "web" || len(c.Spec.InitContainers) != 2 {
		t.Errorf("the copy on the same node: %+v", c)
	}
	debug("web", "--copy-to=instead", "--replace", "--container=web", "--image=busybox:3", "--attach=false")
	k.fail(`pods "web" not found`, "", "-n", "debug", "get", "pod", "web")
	k.feed(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"debugged"}}`, "create", "-f", "-")
	for _, profile := range profiles {
		debug("node/debugged", "--image=busybox:1", "--profile="+profile)
	}
	k.run("delete", "node", "debugged")
	k.run("delete", "namespace", "debug", "--wait=false")
}
