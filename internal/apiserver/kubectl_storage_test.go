package apiserver_test

import (
	"strings"
	"testing"
)

const storageYAML = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: example.com/disk
parameters: {kind: ssd}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: slow}
provisioner: example.com/disk
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttributesClass
metadata: {name: gold}
driverName: disk.example.com
parameters: {iops: "9"}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.example.com}
spec: {podInfoOnMount: true}
---
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: n1}
spec: {drivers: [{name: disk.example.com, nodeID: one, topologyKeys: [example.com/rack]}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata: {name: here, namespace: default}
storageClassName: fast
capacity: 5Gi
---
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: va}
spec: {attacher: disk.example.com, nodeName: n1, source: {persistentVolumeName: v}}
status: {attached: true}
`

// TestKubectlStorage: classes of storage, and what CSI drivers and their controllers tell one another by.
func TestKubectlStorage(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	k := i.kubectl(t)
	resources := k.run("api-resources", "--api-group=storage.k8s.io", "--no-headers")
	for _, want := range []string{"csidrivers storage.k8s.io/v1 false CSIDriver", "csinodes storage.k8s.io/v1 false CSINode", "csistoragecapacities storage.k8s.io/v1 true CSIStorageCapacity",
		"storageclasses sc storage.k8s.io/v1 false StorageClass", "volumeattachments storage.k8s.io/v1 false VolumeAttachment", "volumeattributesclasses vac storage.k8s.io/v1 false VolumeAttributesClass"} {
		if !strings.Contains(strings.Join(strings.Fields(resources), " "), want) {
			t.Errorf("api-resources has no %q:\n%s", want, resources)
		}
	}
	k.feed(storageYAML, "apply", "-f", "-")
	k.feed(storageYAML, "apply", "--server-side", "--force-conflicts", "-f", "-")
	var got []string
	for _, row := range columns(k.run("get", "sc,vac,csidriver,csinode,csistoragecapacity,volumeattachment", "--no-headers")) {
		if len(row) > 0 { // one between two kinds is empty
			got = append(got, strings.Join(row[:len(row)-1], " ")) // without its age
		}
	}
	want := []string{
		"storageclass.storage.k8s.io/fast (default) example.com/disk Delete Immediate false", "storageclass.storage.k8s.io/slow example.com/disk Delete Immediate false",
		"volumeattributesclass.storage.k8s.io/gold disk.example.com",
		"csidriver.storage.k8s.io/disk.example.com true true false <unset> false Persistent",
		"csinode.storage.k8s.io/n1 1",
		"csistoragecapacity.storage.k8s.io/here fast",
		"volumeattachment.storage.k8s.io/va disk.example.com v n1 false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("get:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for what, says := range map[string]string{
		"sc/fast":             "IsDefaultClass: Yes",
		"sc/slow":             "Provisioner: example.com/disk Parameters: <none> AllowVolumeExpansion: <unset> MountOptions: <none> ReclaimPolicy: Delete VolumeBindingMode: Immediate",
		"vac/gold":            "DriverName: disk.example.com Parameters: iops=9",
		"csinode/n1":          "Node ID: one",
		"csidriver":           "Pod Info On Mount: true",
		"volumeattachment/va": "Persistent Volume Name: v",
	} {
		if d := strings.Join(strings.Fields(k.run("describe", what)), " "); !strings.Contains(d, says) {
			t.Errorf("describe %s does not say %q: %s", what, says, d)
		}
	}
	if d := k.run("explain", "storageclass.volumeBindingMode"); !strings.Contains(d, "WaitForFirstConsumer") {
		t.Errorf("explain: %s", d)
	}
	k.fail("parameters: Invalid value", "", "patch", "sc", "fast", "--type=merge", "-p", `{"parameters":{"kind":"hdd"}}`)
	k.run("patch", "sc", "fast", "--type=merge", "-p", `{"allowVolumeExpansion":true}`)
	k.fail("updates to parameters are forbidden", "", "patch", "vac", "gold", "--type=merge", "-p", `{"parameters":{"iops":"8"}}`)

	// The status of an attachment has a writer of its own, who changes nothing else.
	k.run("patch", "volumeattachment", "va", "--subresource=status", "--type=merge", "-p",
		`{"metadata":{"labels":{"a":"b"}},"spec":{"nodeName":"n2"},"status":{"attached":true,"attachmentMetadata":{"disk":"sdb"}}}`)
	k.run("patch", "volumeattachment", "va", "--type=merge", "-p", `{"metadata":{"labels":{"c":"d"}},"status":{"attached":false}}`)
	if got := k.run("get", "volumeattachment", "va", "-o", "jsonpath={.metadata.labels} {.spec.nodeName} {.status}"); got != `{"c":"d"} n1 {"attached":true,"attachmentMetadata":{"disk":"sdb"}}` {
		t.Errorf("the attachment is %s", got)
	}
	k.fail("spec: Invalid value", "", "patch", "volumeattachment", "va", "--type=merge", "-p", `{"spec":{"nodeName":"n2"}}`)
	k.run("patch", "csinode", "n1", "--subresource=status", "--type=merge", "-p", `{"status":{"storageHealth":[{"name":"a"}]}}`)
	if got := k.run("get", "csinode", "n1", "-o", "jsonpath={.status}"); got != "{}" && got != "" {
		t.Errorf("status of a CSINode %s", got)
	}
	k.run("patch", "csidriver", "disk.example.com", "--type=merge", "-p", `{"spec":{"requiresRepublish":true}}`)
	if got := k.run("get", "csidriver", "disk.example.com", "-o", "jsonpath={.metadata.generation}"); got != "2" {
		t.Errorf("generation %s of a driver whose specification has changed once", got)
	}
	// There is no controller that says that nobody uses it.
	k.run("patch", "vac", "gold", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.run("delete", "sc,vac,csidriver,csinode,csistoragecapacity,volumeattachment", "--all")
}
