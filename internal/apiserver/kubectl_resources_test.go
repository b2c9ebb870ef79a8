package apiserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const configMapYAML = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {color: blue, size: "3"}
`

const nodeYAML = `
apiVersion: v1
kind: Node
metadata: {name: n1}
status:
  capacity: {cpu: "2", memory: 4Gi, example.com/widget: "3"}
  addresses: [{type: InternalIP, address: 127.0.0.1}, {type: Hostname, address: n1}]
  conditions: [{type: Ready, status: "True", reason: KubeletReady}]
  nodeInfo: {kubeletVersion: v1, osImage: Debian, kernelVersion: "6.1", containerRuntimeVersion: monopod://1}
`

// What people do with kubectl, by the real one.
func TestKubectl(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	defer i.control(t)()
	for name, test := range map[string]func(*testing.T, kubectl){
		"configmap": kubectlConfigMap, "secret": kubectlSecret, "namespace": kubectlNamespace, "node": kubectlNode, "jobs": kubectlJobs, "autoscale": kubectlAutoscale,
		"discovery": kubectlDiscovery, "server-side apply": kubectlServerSideApply, "bad input": kubectlBadInput,
		"events": kubectlEvents, "cascade": kubectlCascade, "drain": kubectlDrain, "debug": kubectlDebug,
		"workloads": kubectlWorkloads, "scale": kubectlScale,
	} {
		t.Run(name, func(t *testing.T) { test(t, i.kubectl(t)) })
	}
}

func kubectlConfigMap(t *testing.T, k kubectl) {
	k.run("create", "namespace", "cm")
	k.feed(configMapYAML, "-n", "cm", "create", "-f", "-")
	table := columns(k.run("-n", "cm", "get", "configmap", "settings", "-o", "wide"))
	if want := "NAME DATA AGE"; strings.Join(table[0], " ") != want || table[1][0] != "settings" || table[1][1] != "2" {
		t.Errorf("get -o wide: %q, want the columns %q and 2 data", table, want)
	}
	k.run("-n", "cm", "patch", "cm", "settings", "-p", `{"data":{"color":"red"}}`)
	k.run("-n", "cm", "patch", "cm", "settings", "--type=json", "-p", `[{"op":"remove","path":"/data/size"}]`)
	k.run("-n", "cm", "patch", "cm", "settings", "--type=merge", "-p", `{"data":{"shape":"round"}}`)
	k.run("-n", "cm", "label", "cm", "settings", "tier=front")
	if got := k.run("-n", "cm", "get", "cm", "-l", "app=web,tier=front", "-o", "jsonpath={.items[*].data}"); got != `{"color":"red","shape":"round"}` {
		t.Errorf("after three patches data is %s", got)
	}
	if d := k.run("-n", "cm", "describe", "cm", "settings"); !strings.Contains(d, "color:\n----\nred") {
		t.Errorf("describe: %s", d)
	}
	k.run("-n", "cm", "patch", "cm", "settings", "-p", `{"immutable":true}`)
	k.fail("may not be changed when `immutable` is set", "", "-n", "cm", "patch", "cm", "settings", "-p", `{"data":{"color":"green"}}`)
	k.run("-n", "cm", "delete", "cm", "settings")
	k.fail(`configmaps "settings" not found`, "", "-n", "cm", "get", "cm", "settings")
}

func kubectlSecret(t *testing.T, k kubectl) {
	k.run("create", "secret", "generic", "s", "--from-literal=user=joe")
	k.feed(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"w"},"stringData":{"k":"written"}}`, "create", "-f", "-")
	if got := k.run("get", "secret", "w", "-o", "jsonpath={.type} {.data} {.stringData}"); got != `Opaque {"k":"d3JpdHRlbg=="} ` {
		t.Errorf("type, data and stringData are %q: stringData goes into data and the type has a default", got)
	}
	k.run("patch", "secret", "w", "-p", `{"stringData":{"k2":"x"}}`)
	table := columns(k.run("get", "secrets"))
	if len(table) != 3 || strings.Join(table[0], " ") != "NAME TYPE DATA AGE" || strings.Join(table[2][:3], " ") != "w Opaque 2" {
		t.Errorf("get: %q", table)
	}
	if got := k.run("get", "secrets", "--field-selector", "type=kubernetes.io/tls", "-o", "name"); got != "" {
		t.Errorf("secrets of type tls: %q, want none", got)
	}
	if d := k.run("describe", "secret", "s"); !strings.Contains(d, "user:  3 bytes") || strings.Contains(d, "joe") {
		t.Errorf("describe: %s", d)
	}
	k.fail("type: Invalid value", "", "patch", "secret", "w", "-p", `{"type":"example.com/x"}`)
	k.fail("data[tls.key]: Required value", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"type":"kubernetes.io/tls","data":{"tls.crt":"eA=="}}`, "create", "-f", "-")
	k.fail("data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\"",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{hush"}}`, "create", "-f", "-")
	k.run("delete", "secret", "s", "w")
}

func kubectlNamespace(t *testing.T, k kubectl) {
	for _, name := range []string{"default", "kube-system", "kube-node-lease"} {
		k.fail("this namespace may not be deleted", "", "delete", "namespace", name)
	}
	k.run("create", "namespace", "team")
	if d := k.run("describe", "ns", "team"); !strings.Contains(d, "kubernetes.io/metadata.name=team") || !strings.Contains(d, "Status:       Active") {
		t.Errorf("describe: %s", d)
	}
	k.run("-n", "team", "create", "configmap", "a")
	k.run("-n", "team", "create", "secret", "generic", "b")
	k.feed(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, "-n", "team", "create", "-f", "-")
	k.run("delete", "namespace", "team") // waits until it is gone
	k.fail(`namespaces "team" not found`, "", "get", "namespace", "team")
	k.fail(`namespaces "team" not found`, "", "-n", "team", "create", "configmap", "a")
	k.run("create", "namespace", "team")
	left := k.run("-n", "team", "get", "cm,secret,pod", "-o", "name")
	if left = strings.Replace(left, "configmap/kube-root-ca.crt\n", "", 1); left != "" { // each namespace gets its own
		t.Errorf("a new namespace of the same name has %q", left)
	}

	// Something that does not let go keeps the namespace, and nothing new gets in.
	k.feed(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held","finalizers":["example.com/hold"]}}`, "-n", "team", "create", "-f", "-")
	k.run("delete", "namespace", "team", "--wait=false")
	if phase := k.run("get", "ns", "team", "-o", "jsonpath={.status.phase}"); phase != "Terminating" {
		t.Errorf("phase %q", phase)
	}
	k.fail("because it is being terminated", "", "-n", "team", "create", "configmap", "late")
	k.run("-n", "team", "patch", "cm", "held", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.run("wait", "--for=delete", "namespace/team", "--timeout=10s")
}

func kubectlNode(t *testing.T, k kubectl) {
	k.feed(nodeYAML, "create", "-f", "-")
	table := columns(k.run("get", "nodes", "-o", "wide"))
	if got := strings.Join(table[0][:6], " "); got != "NAME STATUS ROLES AGE VERSION INTERNAL-IP" || table[1][0] != "n1" || table[1][1] != "Ready" || table[1][5] != "127.0.0.1" {
		t.Errorf("get nodes -o wide: %q", table)
	}
	if d := k.run("describe", "node", "n1"); !strings.Contains(d, "example.com/widget:  3") {
		t.Errorf("describe: %s", d)
	}
	// spec and status have writers of their own.
	k.run("patch", "node", "n1", "-p", `{"spec":{"unschedulable":true},"status":{"capacity":{"cpu":"64"}}}`)
	k.run("patch", "node", "n1", "--subresource=status", "-p", `{"spec":{"unschedulable":false},"status":{"capacity":{"memory":"8Gi"}}}`)
	if got := k.run("get", "node", "n1", "-o", "jsonpath={.spec.unschedulable} {.status.capacity.cpu} {.status.capacity.memory}"); got != "true 2 8Gi" {
		t.Errorf("unschedulable, cpu, memory: %q, want \"true 2 8Gi\"", got)
	}
	k.run("uncordon", "n1")
	k.run("taint", "node", "n1", "dedicated=x:NoSchedule")
	k.fail("spec.taints[0].effect: Unsupported value", "", "patch", "node", "n1", "-p", `{"spec":{"taints":[{"key":"a","effect":"Never"}]}}`)
	if got := k.run("get", "nodes", "--field-selector=spec.unschedulable=true", "-o", "name"); got != "" {
		t.Errorf("unschedulable nodes: %q, want none", got)
	}
	k.fail("is not a field that Node can be selected by", "", "get", "nodes", "--field-selector=spec.color=red")
	k.run("delete", "node", "n1")
}

func kubectlDiscovery(t *testing.T, k kubectl) {
	resources := k.run("api-resources", "--no-headers")
	for _, want := range []string{"configmaps cm v1 true ConfigMap", "pods po v1 true Pod", "nodes no v1 false Node",
		"namespaces ns v1 false Namespace", "leases coordination.k8s.io/v1 true Lease", "events ev events.k8s.io/v1 true Event",
		"tokenreviews authentication.k8s.io/v1 false TokenReview", "deployments deploy apps/v1 true Deployment", "replicasets rs apps/v1 true ReplicaSet",
		"statefulsets sts apps/v1 true StatefulSet", "daemonsets ds apps/v1 true DaemonSet", "replicationcontrollers rc v1 true ReplicationController",
		"jobs batch/v1 true Job", "cronjobs cj batch/v1 true CronJob", "horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler",
		"poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget", "controllerrevisions apps/v1 true ControllerRevision",
		"ingresses ing networking.k8s.io/v1 true Ingress", "ingressclasses networking.k8s.io/v1 false IngressClass",
		"networkpolicies netpol networking.k8s.io/v1 true NetworkPolicy", "services svc v1 true Service", "endpointslices discovery.k8s.io/v1 true EndpointSlice"} {
		found := false
		for _, row := range columns(resources) {
			found = found || strings.Join(row, " ") == want
		}
		if !found {
			t.Errorf("api-resources has no line %q:\n%s", want, resources)
		}
	}
	for _, of := range []string{"pod.spec.containers", "node.status.capacity", "configmap.data", "lease.spec", "deployment.spec.strategy.rollingUpdate", "sts.spec.ordinals",
		"job.spec.podFailurePolicy", "cj.spec.jobTemplate", "hpa.spec.behavior", "pdb.spec.minAvailable", "netpol.spec.ingress.from", "ing.spec.rules", "svc.spec.trafficDistribution", "--api-version=events.k8s.io/v1 event.note"} {
		if out := k.run(append([]string{"explain"}, strings.Fields(of)...)...); !strings.Contains(out, "DESCRIPTION:") {
			t.Errorf("explain %s: %s", of, out)
		}
	}
	if v := k.run("version", "-o", "json"); !strings.Contains(v, `"gitVersion": "v1.`) || !strings.Contains(v, "+monopod") {
		t.Errorf("version: %s", v)
	}
	for _, path := range []string{"/readyz", "/livez", "/healthz"} {
		if out := k.run("get", "--raw", path); out != "ok" {
			t.Errorf("%s: %q", path, out)
		}
	}
	if out := k.run("get", "--raw", "/metrics"); !strings.Contains(out, "apiserver_request_total") {
		t.Error("/metrics has no apiserver_request_total")
	}
	// What clients generate code from must not name what only this program knows.
	for _, path := range []string{"/openapi/v2", "/openapi/v3/api/v1"} {
		out := k.run("get", "--raw", path)
		if !json.Valid([]byte(out)) || strings.Contains(out, "__internal") {
			t.Errorf("%s: not JSON, or it names the internal version", path)
		}
	}
}

func kubectlServerSideApply(t *testing.T, k kubectl) {
	const mine = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: one, b: two}\n"
	k.feed(mine, "apply", "--server-side", "-f", "-")
	const theirs = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {a: other, c: three}\n"
	k.fail(`conflict with "kubectl": .data.a`, theirs, "apply", "--server-side", "--field-manager=other", "-f", "-")
	k.feed(theirs, "apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", "-")
	// What the first manager no longer lists, and nobody else owns, goes.
	k.feed("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {d: four}\n", "apply", "--server-side", "-f", "-")
	if got := k.run("get", "cm", "shared", "-o", "jsonpath={.data}"); got != `{"a":"other","c":"three","d":"four"}` {
		t.Errorf("data is %s", got)
	}
	var cm corev1.ConfigMap
	if err := json.Unmarshal([]byte(k.run("get", "cm", "shared", "-o", "json", "--show-managed-fields")), &cm); err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, f := range cm.ManagedFields {
		owners[f.Manager] = strings.Join(strings.Fields(string(f.FieldsV1.GetRawBytes())), "")
	}
	if owners["kubectl"] != `{"f:data":{"f:d":{}}}` || owners["other"] != `{"f:data":{"f:a":{},"f:c":{}}}` {
		t.Errorf("managed fields %q", owners)
	}
	k.feed(mine, "apply", "-f", "-") // the client-side way, on the same object
	k.run("delete", "cm", "shared")
}

func kubectlBadInput(t *testing.T, k kubectl) {
	k.fail(`unknown field "dat"`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dat":{}}`, "create", "-f", "-")
	k.fail("metadata.name: Invalid value", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"Not_A_Name"}}`, "create", "-f", "-")
	k.fail("data[a/b]: Invalid value", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a/b":"c"}}`, "create", "-f", "-")
	k.fail("must not be a key of `binaryData` too", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"c"},"binaryData":{"a":"eA=="}}`, "create", "-f", "-")
	k.fail("no matches for kind \"Thing\"", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"x"}}`, "create", "-f", "-")
	k.fail("Too long", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"`+strings.Repeat("x", 1<<20+1)+`"}}`, "create", "-f", "-")
	k.fail("spec.preferredHolder: Forbidden: not supported by Monopod yet",
		`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"l"},"spec":{"preferredHolder":"me"}}`, "create", "-f", "-")
}

// One stored event is read through both of its API groups.
func kubectlEvents(t *testing.T, k kubectl) {
	k.feed(`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"new"},"eventTime":"2026-01-02T03:04:05.000000Z",
		"reportingController":"example.com/c","reportingInstance":"c-1","action":"Look","reason":"Looked","type":"Normal","note":"hello",
		"regarding":{"kind":"ConfigMap","namespace":"default","name":"x"}}`, "create", "-f", "-")
	if got := k.run("get", "events.v1.", "new", "-o", "jsonpath={.apiVersion} {.message} {.involvedObject.name} {.reportingComponent}"); got != "v1 hello x example.com/c" {
		t.Errorf("the new event in core/v1: %q", got)
	}
	k.feed(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"old"},"reason":"Seen","type":"Warning","message":"hi","count":3,
		"involvedObject":{"kind":"ConfigMap","namespace":"default","name":"y"},"source":{"component":"c"}}`, "create", "-f", "-")
	if got := k.run("get", "events.v1.events.k8s.io", "old", "-o", "jsonpath={.apiVersion} {.note} {.regarding.name} {.deprecatedCount} {.deprecatedSource.component}"); got != "events.k8s.io/v1 hi y 3 c" {
		t.Errorf("the old event in events.k8s.io/v1: %q", got)
	}
	if got := k.run("get", "events", "--field-selector=involvedObject.name=y", "-o", "name"); got != "event/old\n" {
		t.Errorf("events of y: %q", got)
	}
	if got := k.run("get", "events.v1.events.k8s.io", "--field-selector=regarding.name=x", "-o", "name"); got != "event.events.k8s.io/new\n" {
		t.Errorf("events of x: %q", got)
	}
	k.run("delete", "events", "--all")
}
