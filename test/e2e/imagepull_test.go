package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/harness"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/registry"
)

const pullUser, pullPassword = "robot", "pass:word"

// TestImagePull pulls images of pods from registries on loopback: one that asks for a password, and one that misbehaves.
func TestImagePull(t *testing.T) {
	closed := images.NewRegistry(t, images.RegistryConfig{Username: pullUser, Password: pullPassword})
	app, err := images.Busybox("app:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, repository := range []string{"team/app", "team/volume", "team/dockercfg", "team/wildcard", "team/plugin"} {
		img := app
		img.Layers = append(img.Layers[:1:1], ociarchive.Layer{
			{Path: "from/name", Data: []byte(repository)}, {Path: "from/deep/file", Data: []byte("deep " + repository)}})
		if _, err := closed.Push(t.Context(), img, repository, "1"); err != nil {
			t.Fatal(err)
		}
	}
	faulty := registry.New(t)
	built, err := ociarchive.Build(app)
	if err != nil {
		t.Fatal(err)
	}
	faulty.Push("app", "1", built)
	faulty.Push("app", "2", built)
	hosts := func(addr string) string { return fmt.Sprintf("server = \"http://%s\"\n", addr) }
	n := harness.StartNode(t, harness.Options{
		HostsTOML: map[string]string{
			"faulty.test": hosts(faulty.Addr), "hang.test": hosts(faulty.Addr),
		},
		Args: credentialPlugins(t, closed.Addr),
	})
	t.Run("pull secrets", func(t *testing.T) { testPullSecrets(t, n, closed.Addr) })
	t.Run("reasons and back-off", func(t *testing.T) { testPullErrors(t, n, faulty) })
	t.Run("credential providers", func(t *testing.T) { testCredentialProviders(t, n, closed.Addr) })
	t.Run("image volumes", func(t *testing.T) { testImageVolumes(t, n, closed.Addr) })
}

// credentialPlugins are the settings of a node with plugins: one for the closed
// registry by the name localhost, one that never answers, and one that fails.
func credentialPlugins(t *testing.T, closed string) []string {
	t.Helper()
	dir := t.TempDir()
	_, port, _ := strings.Cut(closed, ":")
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("good", "#!/bin/sh\ncat > /dev/null\necho '"+`{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",`+
		`"cacheKeyType":"Registry","auth":{"localhost:'"$PORT"'/team":{"username":"`+pullUser+`","password":"'"$PASSWORD"'"}}}'`+"\n")
	write("hanging", "#!/bin/sh\necho I am stuck >&2\nsleep 100000\n")
	write("failing", "#!/bin/sh\necho 'no cloud here' >&2\nexit 7\n")
	provider := func(name, images string) string {
		return "- name: " + name + "\n  matchImages: [" + images + "]\n  defaultCacheDuration: 1m\n" +
			"  apiVersion: credentialprovider.kubelet.k8s.io/v1\n  env: [{name: PASSWORD, value: '" + pullPassword + "'}, {name: PORT, value: '" + port + "'}]\n"
	}
	config := write("config.yaml", "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"+
		provider("good", "'local*:"+port+"'")+provider("hanging", "hang.test")+provider("failing", "'localhost:"+port+"/team'"))
	return []string{"--image-credential-provider-config", config, "--image-credential-provider-bin-dir", dir}
}

func testPullSecrets(t *testing.T, n *harness.Node, closed string) {
	create := func(kind, key, name string, content any) {
		t.Helper()
		raw, _ := json.Marshal(content)
		n.Apply(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/%s", "metadata": {"name": %q}, "data": {%q: %q}}`,
			kind, name, key, base64.StdEncoding.EncodeToString(raw)))
	}
	entry := map[string]string{"username": pullUser, "password": pullPassword}
	n.Kubectl("create", "secret", "docker-registry", "wrong", "--docker-server="+closed, "--docker-username="+pullUser, "--docker-password=wrong")
	n.Kubectl("create", "secret", "docker-registry", "good", "--docker-server=https://"+closed+"/v1/", "--docker-username="+pullUser, "--docker-password="+pullPassword)
	n.Kubectl("create", "secret", "generic", "opaque", "--from-literal=a=b")
	create("dockercfg", ".dockercfg", "old", map[string]any{closed + "/team/dockercfg": entry, "other.test": map[string]string{"auth": "broken"}})
	create("dockerconfigjson", ".dockerconfigjson", "wildcard", map[string]any{"auths": map[string]any{strings.Replace(closed, "127.0.", "127.*.", 1): entry}})

	// Without: the registry's refusal is told.
	n.Apply(pullPod("without", closed+"/team/app:1"))
	awaitWaiting(t, n, "without", "ErrImagePull", `failed to pull image "`+closed+`/team/app:1": `, "401")
	n.Kubectl("delete", "pod", "without", "--timeout=120s")

	// Of several secrets all are tried; what can't be used is told and does no harm.
	n.Apply(pullPod("several", closed+"/team/app:1", "missing", "opaque", "wrong", "good"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/several", "--timeout=120s")
	awaitEvents(t, n, "several", `Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (missing, opaque)`, `"Opaque"`,
		`Normal Pulling Pulling image "`+closed+`/team/app:1"`, `Normal Pulled Successfully pulled image "`+closed+`/team/app:1" in `, "Image size: ")
	n.Apply(pullPod("old", closed+"/team/dockercfg:1", "old"))
	n.Apply(pullPod("wildcard", closed+"/team/wildcard:1", "wildcard"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/old", "pod/wildcard", "--timeout=120s")
	awaitEvents(t, n, "old", `FailedToRetrieveImagePullSecret`, `entry "other.test"`)
	if all := podEvents(t, n, "old") + podEvents(t, n, "several"); strings.Contains(all, pullPassword) || strings.Contains(n.Log(), pullPassword) {
		t.Errorf("a password is told:\n%s", all)
	}
	n.Kubectl("delete", "pod", "several", "old", "wildcard", "--timeout=120s")
}

func testPullErrors(t *testing.T, n *harness.Node, faulty *registry.Registry) {
	var mu sync.Mutex
	var asked []time.Time
	refuse := registry.Refuse(http.StatusForbidden, "DENIED", "you shall not pull")
	faulty.Misbehave(registry.Rule{Of: registry.Manifests, Method: http.MethodHead, Fault: func(w http.ResponseWriter, req *http.Request, serve http.HandlerFunc) {
		mu.Lock()
		asked = append(asked, time.Now())
		mu.Unlock()
		refuse(w, req, serve)
	}}, registry.Rule{Of: registry.Manifests, Fault: refuse})
	n.Apply(pullPod("denied", "faulty.test/app:1"))
	n.Apply(strings.Replace(pullPod("never", "faulty.test/app:1"), `"Always"`, `"Never"`, 1))
	n.Apply(pullPod("invalid", "faulty.test/App:1"))
	awaitWaiting(t, n, "denied", "ErrImagePull", `failed to pull image "faulty.test/app:1": `, "you shall not pull")
	awaitWaiting(t, n, "denied", "ImagePullBackOff", `Back-off pulling image "faulty.test/app:1": ErrImagePull: `, "you shall not pull")
	awaitWaiting(t, n, "never", "ErrImageNeverPull", `Container image "faulty.test/app:1" is not present with pull policy of Never`)
	awaitWaiting(t, n, "invalid", "InvalidImageName", `Failed to apply default image tag "faulty.test/App:1": couldn't parse image name`)
	awaitEvents(t, n, "denied", "Normal Pulling ", `Warning Failed Failed to pull image "faulty.test/app:1": `, "Warning Failed Error: ErrImagePull",
		`Normal BackOff Back-off pulling image "faulty.test/app:1"`, "Warning Failed Error: ImagePullBackOff")
	awaitEvents(t, n, "never", "Warning ErrImageNeverPull ")
	awaitEvents(t, n, "invalid", "Warning InspectFailed ")

	// The pod comes up by itself once the registry lets it, and one whose image is changed does not wait.
	harness.Eventually(t, "a second attempt", func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(asked) > 1, fmt.Sprint(len(asked))
	})
	mu.Lock()
	if gap := asked[1].Sub(asked[0]); gap < 10*time.Second {
		t.Errorf("the second attempt came after %s, want at least 10s", gap)
	}
	mu.Unlock()
	faulty.Misbehave()
	n.Kubectl("set", "image", "pod/denied", "c=faulty.test/app:2")
	n.Kubectl("wait", "--for=condition=Ready", "pod/denied", "--timeout=120s")
	n.Kubectl("delete", "pod", "denied", "never", "invalid", "--timeout=120s")
}

func testCredentialProviders(t *testing.T, n *harness.Node, closed string) {
	_, port, _ := strings.Cut(closed, ":")
	n.Apply(pullPod("hangs", "hang.test/app:1"))
	awaitEvents(t, n, "hangs", "Normal Pulling ")
	n.Apply(pullPod("plugged", "localhost:"+port+"/team/plugin:1"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/plugged", "--timeout=120s")
	awaitEvents(t, n, "plugged", "Warning CredentialProviderFailed credential provider failing: exit status 7: no cloud here")
	if got := n.Kubectl("exec", "plugged", "--", "cat", "/from/name"); got != "team/plugin" {
		t.Errorf("the image says %q", got)
	}
	// A pod that waits for a plugin goes when it is deleted.
	n.Kubectl("delete", "pod", "hangs", "plugged", "--timeout=40s")
}

func testImageVolumes(t *testing.T, n *harness.Node, closed string) {
	volume := func(name, image, policy, mounts, script string) string {
		return strings.Replace(podOf(name, script, fmt.Sprintf(`"terminationGracePeriodSeconds": 0, "imagePullSecrets": [{"name": "good"}],
			"volumes": [{"name": "v", "image": {"reference": %q, "pullPolicy": %q}}],`, image, policy), fmt.Sprintf(`"volumeMounts": [%s]`, mounts)),
			busybox, "faulty.test/app:2", 1)
	}
	n.Apply(volume("shows", closed+"/team/volume:1", "IfNotPresent",
		`{"name": "v", "mountPath": "/all"}, {"name": "v", "mountPath": "/deep", "subPath": "from/deep"}, {"name": "v", "mountPath": "/one", "subPath": "from/name"}`,
		"exec sleep 3600"))
	n.Kubectl("wait", "--for=condition=Ready", "pod/shows", "--timeout=120s")
	got := n.Kubectl("exec", "shows", "--", "sh", "-c", "cat /all/from/name /deep/file /one; touch /all/x 2>&1; echo no > /one 2>&1; true")
	if !strings.HasPrefix(got, "team/volume"+"deep team/volume"+"team/volume") || strings.Count(got, "Read-only file system") < 1 {
		t.Errorf("the volume shows %q", got)
	}
	if got := n.Kubectl("exec", "shows", "--", "grep", "-c", " /all \\| /deep \\| /one ", "/proc/mounts"); strings.TrimSpace(got) != "3" {
		t.Errorf("mounts: %s", got)
	}
	if got := n.Kubectl("exec", "shows", "--", "sh", "-c", "grep ' /all \\| /deep \\| /one ' /proc/mounts | grep -vc ' ro,'; true"); strings.TrimSpace(got) != "0" {
		t.Errorf("%s mounts can be written to", got)
	}

	if got := n.Kubectl("get", "pod", "shows", "-o=jsonpath={.status.containerStatuses[0].volumeMounts[0].volumeStatus.image.imageRef}"); !strings.HasPrefix(got, closed+"/team/volume@sha256:") {
		t.Errorf("the status says that the volume shows %q", got)
	}

	n.Apply(volume("absent", closed+"/team/none:1", "IfNotPresent", `{"name": "v", "mountPath": "/v"}`, "true"))
	n.Apply(volume("never", closed+"/team/none:1", "Never", `{"name": "v", "mountPath": "/v"}`, "true"))
	n.Apply(volume("nowhere", closed+"/team/volume:1", "IfNotPresent", `{"name": "v", "mountPath": "/v", "subPath": "no/such"}`, "true"))
	awaitWaiting(t, n, "absent", "ErrImagePull", `failed to pull image "`+closed+`/team/none:1": `)
	awaitWaiting(t, n, "absent", "ImagePullBackOff", `Back-off pulling image "`+closed+`/team/none:1": ErrImagePull: `)
	awaitWaiting(t, n, "never", "ErrImageNeverPull", `"`+closed+`/team/none:1"`)
	awaitWaiting(t, n, "nowhere", "CreateContainerError", `"no/such"`)

	for want, manifest := range map[string]string{
		"spec.volumes[0].image.reference: Required value":                  volume("refused", "", "Always", `{"name": "v", "mountPath": "/v"}`, "true"),
		`spec.volumes[0].image.pullPolicy: Unsupported value: "Sometimes"`: volume("refused", "a", "Sometimes", `{"name": "v", "mountPath": "/v"}`, "true"),
		"spec.containers[0].volumeMounts[0].subPath: Invalid value":        volume("refused", "a", "Always", `{"name": "v", "mountPath": "/v", "subPath": "../x"}`, "true"),
	} {
		if _, err := n.TryKubectl(manifest, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("created: %v, want %s", err, want)
		}
	}
	n.Kubectl("delete", "pod", "shows", "absent", "never", "nowhere", "--timeout=120s")
}

// pullPod is a pod whose image is pulled in any case, with pull secrets.
func pullPod(name, image string, secrets ...string) string {
	var refs []string
	for _, s := range secrets {
		refs = append(refs, fmt.Sprintf(`{"name": %q}`, s))
	}
	return strings.Replace(podOf(name, "exec sleep 3600", fmt.Sprintf(`"terminationGracePeriodSeconds": 0, "imagePullSecrets": [%s],`, strings.Join(refs, ", ")),
		`"imagePullPolicy": "Always"`), busybox, image, 1)
}

// awaitWaiting waits until the pod's container waits for the reason, with a message that has all the words.
func awaitWaiting(t *testing.T, n *harness.Node, name, reason string, words ...string) {
	t.Helper()
	harness.Eventually(t, "pod "+name+" waits with reason "+reason, func() (bool, string) {
		var p corev1.Pod
		getPod(t, n, name, &p)
		if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].State.Waiting == nil {
			return false, fmt.Sprintf("%+v", p.Status.ContainerStatuses)
		}
		w := p.Status.ContainerStatuses[0].State.Waiting
		return w.Reason == reason && hasAll(w.Message, words), w.Reason + ": " + w.Message
	})
}

// awaitEvents waits until the pod's events, a line each with type, reason and message, have all the words.
func awaitEvents(t *testing.T, n *harness.Node, name string, words ...string) {
	t.Helper()
	harness.Eventually(t, "events of pod "+name, func() (bool, string) {
		all := podEvents(t, n, name)
		return hasAll(all, words), all
	})
}

func podEvents(t *testing.T, n *harness.Node, name string) string {
	t.Helper()
	return n.Kubectl("get", "events", "--field-selector", "involvedObject.kind=Pod,involvedObject.name="+name,
		"-o", `jsonpath={range .items[*]}{.type} {.reason} {.message}{"\n"}{end}`)
}

func hasAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
