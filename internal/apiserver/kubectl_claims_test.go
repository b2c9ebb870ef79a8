package apiserver_test

import (
	"strings"
	"testing"
)

const volumesYAML = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: usual, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disk
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: usual
  local: {path: /srv/disk}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: claims, labels: {app: a}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 2Gi}}}
status: {phase: Bound}
`

// TestKubectlClaims: volumes and claims as objects. There is no controller here: who writes their statuses is this test.
func TestKubectlClaims(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	k := i.kubectl(t)
	k.run("create", "namespace", "claims")
	k.feed(volumesYAML, "apply", "-f", "-")
	k.feed(volumesYAML, "apply", "--server-side", "--force-conflicts", "-f", "-")
	line := func(args ...string) string {
		t.Helper()
		row := columns(k.run(append(args, "--no-headers")...))[0]
		return strings.Join(row[:len(row)-1], " ") // without its age
	}
	if got, want := line("get", "pv", "disk"), "disk 5Gi RWO Retain Pending usual <unset>"; got != want {
		t.Errorf("a new volume: %s, want %s", got, want)
	}
	if got, want := line("-n", "claims", "get", "pvc", "data"), "data Pending usual <unset>"; got != want {
		t.Errorf("a new claim: %s, want %s", got, want)
	}
	get := func(what, path string) string {
		t.Helper()
		return k.run("-n", "claims", "get", what, "-o", "jsonpath="+path)
	}
	if got := get("pv/disk", "{.metadata.finalizers} {.spec.volumeMode} {.status.phase}"); got != `["kubernetes.io/pv-protection"] Filesystem Pending` {
		t.Errorf("a new volume has %s", got)
	}
	if got := get("pvc/data", "{.metadata.finalizers} {.spec.volumeMode} {.status.phase}"); got != `["kubernetes.io/pvc-protection"] Filesystem Pending` {
		t.Errorf("a new claim has %s", got)
	}
	if got := k.run("get", "pv", "--field-selector", "metadata.name=disk,name=disk", "-o", "name") + k.run("get", "pvc", "-A", "--field-selector", "metadata.namespace=other", "-o", "name"); got != "persistentvolume/disk\n" {
		t.Errorf("selected: %q", got)
	}
	in := func(args ...string) []string { return append([]string{"-n", "claims"}, args...) }
	patch := func(what, body string, more ...string) []string {
		return append(in("patch", what, "--type=merge", "-p", body), more...)
	}
	k.fail("spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation", "", patch("pv/disk", `{"spec":{"local":{"path":"/srv/other"}}}`)...)
	k.fail("spec is immutable after creation except", "", patch("pvc/data", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)...) // for bound claims
	k.fail("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims", "", patch("pvc/data", `{"spec":{"storageClassName":"other"}}`)...)

	// They are bound.
	k.run(patch("pv/disk", `{"spec":{"claimRef":{"kind":"PersistentVolumeClaim","apiVersion":"v1","namespace":"claims","name":"data","uid":"`+get("pvc/data", "{.metadata.uid}")+`"}}}`)...)
	k.run(patch("pv/disk", `{"status":{"phase":"Bound"},"spec":{"storageClassName":"other"}}`, "--subresource=status")...)
	k.run(patch("pvc/data", `{"spec":{"volumeName":"disk"},"status":{"phase":"Lost"}}`)...)
	k.run(patch("pvc/data", `{"status":{"phase":"Bound","capacity":{"storage":"5Gi"},"accessModes":["ReadWriteOnce"]}}`, "--subresource=status")...)
	if got, want := line("get", "pv", "disk"), "disk 5Gi RWO Retain Bound claims/data usual <unset>"; got != want {
		t.Errorf("a bound volume: %s, want %s", got, want)
	}
	if got, want := line("-n", "claims", "get", "pvc", "data"), "data Bound disk 5Gi RWO usual <unset>"; got != want {
		t.Errorf("a bound claim: %s, want %s", got, want)
	}
	if d := strings.Join(strings.Fields(k.run(in("describe", "pvc", "data")...)), " "); !strings.Contains(d, "StorageClass: usual Status: Bound Volume: disk") || !strings.Contains(d, "Capacity: 5Gi Access Modes: RWO VolumeMode: Filesystem") {
		t.Errorf("describe: %s", d)
	}
	if d := strings.Join(strings.Fields(k.run("describe", "pv", "disk")), " "); !strings.Contains(d, "Claim: claims/data Reclaim Policy: Retain") || !strings.Contains(d, "Type: LocalVolume") {
		t.Errorf("describe: %s", d)
	}
	k.run(patch("pvc/data", `{"spec":{"resources":{"requests":{"storage":"7Gi"}}}}`)...)
	k.fail("field can not be less than status.capacity", "", patch("pvc/data", `{"spec":{"resources":{"requests":{"storage":"1Gi"}}}}`)...)
	k.fail("not supported by Monopod yet: use a volume of the kind csi, of the driver rbd.csi.ceph.com",
		`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"r"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"rbd":{"monitors":["m"],"image":"i"}}}`, "create", "-f", "-")

	// What is in use stays until somebody says that it is not.
	k.run(in("delete", "pvc", "data", "--wait=false")...)
	if got := line("-n", "claims", "get", "pvc", "data"); !strings.HasPrefix(got, "data Terminating disk") {
		t.Errorf("a claim that goes: %s", got)
	}
	k.run(in("patch", "pvc", "data", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)...)
	k.fail("not found", "", in("get", "pvc", "data")...)
}

// TestKubectlPrune: `kubectl apply --prune` looks through claims and volumes, too.
func TestKubectlPrune(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	k := i.kubectl(t)
	configMap := func(name string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `","labels":{"app":"a"}}}` + "\n"
	}
	k.run("create", "namespace", "prune")
	k.feed(configMap("one")+configMap("two"), "-n", "prune", "apply", "--prune", "-l", "app=a", "-f", "-")
	k.feed(configMap("one"), "-n", "prune", "apply", "--prune", "-l", "app=a", "-f", "-")
	if got := k.run("-n", "prune", "get", "configmaps", "-l", "app=a", "-o", "name"); got != "configmap/one\n" {
		t.Errorf("what is left is %q", got)
	}
}
