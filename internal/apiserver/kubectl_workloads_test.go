package apiserver_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is a manifest of a kind of workload with two replicas.
func workload(apiVersion, kind, name, selector string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":{"replicas":2,"selector":%s,
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}}}`, apiVersion, kind, name, selector)
}

// Workloads are objects; who makes pods of them is not here.
func kubectlWorkloads(t *testing.T, k kubectl) {
	k.run("create", "namespace", "work")
	in := func(args ...string) []string { return append([]string{"-n", "work"}, args...) }
	k.run(in("create", "deployment", "web", "--image=i:1", "--replicas=3")...)
	get := func(what, path string) string {
		t.Helper()
		return k.run(in("get", what, "-o", "jsonpath="+path)...)
	}
	if got, want := get("deploy/web", "{.spec.strategy} {.spec.progressDeadlineSeconds} {.spec.revisionHistoryLimit} {.spec.template.spec.dnsPolicy} {.metadata.generation}"),
		`{"rollingUpdate":{"maxSurge":"25%","maxUnavailable":"25%"},"type":"RollingUpdate"} 600 10 ClusterFirst 1`; got != want {
		t.Errorf("a new deployment: %s, want %s", got, want)
	}
	k.run(in("set", "image", "deployment/web", "i=i:2")...)
	k.run(in("rollout", "pause", "deployment/web")...)
	k.run(in("annotate", "deployment", "web", "why=it")...) // which replica sets get
	k.run(in("label", "deployment", "web", "tier=front")...)
	k.run(in("patch", "deployment", "web", "--subresource=status", "-p",
		`{"metadata":{"labels":{"tier":"back"}},"spec":{"replicas":9},"status":{"observedGeneration":4,"replicas":3,"readyReplicas":2,"terminatingReplicas":1}}`)...)
	if got, want := get("deploy/web", "{.spec.replicas} {.spec.paused} {.spec.template.spec.containers[0].image} {.metadata.labels.tier} {.metadata.generation} {.status.readyReplicas} {.status.terminatingReplicas}"),
		"3 true i:2 front 4 2 1"; got != want {
		t.Errorf("the deployment is %s, want %s", got, want)
	}
	k.fail("status.readyReplicas: Invalid value: 4: cannot be greater than status.replicas", "", in("patch", "deployment", "web", "--subresource=status", "-p", `{"status":{"readyReplicas":4}}`)...)
	k.fail("field is immutable", "", in("patch", "deployment", "web", "-p", `{"spec":{"selector":{"matchLabels":{"tier":"front"}},"template":{"metadata":{"labels":{"tier":"front"}}}}}`)...)

	k.fail(`unknown field "spec.replica"`, strings.Replace(workload("apps/v1", "Deployment", "typo", `{"matchLabels":{"app":"web"}}`), "replicas", "replica", 1), in("create", "-f", "-")...)
	k.fail("spec.template.spec.resourceClaims: Forbidden: not supported by Monopod yet", strings.Replace(workload("apps/v1", "Deployment", "claims", `{"matchLabels":{"app":"web"}}`),
		`"containers"`, `"resourceClaims":[{"name":"a","resourceClaimName":"a"}],"containers"`, 1), in("create", "-f", "-")...)

	_, warned, ok := k.try(workload("apps/v1", "ReplicaSet", "web.1", `{"matchLabels":{"app":"web"}}`), in("create", "-f", "-")...)
	if !ok || !strings.Contains(warned, "a DNS label is recommended") {
		t.Errorf("a replica set with a dot in its name: %q", warned)
	}
	_, warned, _ = k.try("", in("patch", "rs", "web.1", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A"}]}],"imagePullSecrets":[{"name":""}]}}}}`)...)
	if !strings.Contains(warned, `Warning: spec.template.spec.imagePullSecrets[0].name: invalid empty name ""`) {
		t.Errorf("an update that is hardly meant: %q", warned)
	}
	k.feed(workload("v1", "ReplicationController", "old", "null"), in("create", "-f", "-")...)
	if got := get("rc/old", "{.spec.selector} {.metadata.labels}"); got != `{"app":"web"} {"app":"web"}` {
		t.Errorf("the selector and the labels of a controller that has none are those of its template: %s", got)
	}
	if got := k.run(in("get", "rc", "--field-selector=status.replicas=0", "-o", "name")...); got != "replicationcontroller/old\n" {
		t.Errorf("controllers without pods: %q", got)
	}
	if got := columns(k.run(in("get", "all", "--no-headers")...)); len(got) != 3 {
		t.Errorf("all is %q", got)
	}
	kubectlDaemonSet(t, k, in)
	if d := k.run(in("describe", "deployment", "web")...); !strings.Contains(d, "RollingUpdateStrategy:  25% max unavailable, 25% max surge") {
		t.Errorf("described as %s", d)
	}

	// What they own goes with those of apps/v1, and stays after those of core/v1, when nobody says otherwise.
	for _, of := range []struct {
		path, apiVersion, kind, resource, name string
		stays                                  bool
	}{
		{"/apis/apps/v1", "apps/v1", "ReplicaSet", "replicasets", "web.1", false},
		{"/api/v1", "v1", "ReplicationController", "replicationcontrollers", "old", true},
	} {
		owner, owned := of.resource+"/"+of.name, "configmap/of-"+of.resource
		k.feed(fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}]}}`,
			"of-"+of.resource, of.apiVersion, of.kind, of.name, get(owner, "{.metadata.uid}")), in("create", "-f", "-")...)
		k.run("delete", "--raw", of.path+"/namespaces/work/"+owner)
		k.run(in("wait", "--for=delete", owner, "--timeout=60s")...)
		if !of.stays {
			k.run(in("wait", "--for=delete", owned, "--timeout=60s")...)
		} else if owners := get(owned, "{.metadata.ownerReferences}"); owners != "" {
			t.Errorf("what %s owned has the owners %s", owner, owners)
		}
	}
	k.run("delete", "namespace", "work", "--wait=false")
}

// kubectlDaemonSet: the count of its templates is in an annotation, and the server's.
func kubectlDaemonSet(t *testing.T, k kubectl, in func(...string) []string) {
	k.feed(strings.Replace(workload("apps/v1", "DaemonSet", "every", `{"matchLabels":{"app":"web"}}`), `"replicas":2,`, "", 1), in("create", "-f", "-")...)
	counts := func(want string) {
		t.Helper()
		if got := k.run(in("get", "ds", "every", "-o", `jsonpath={.metadata.annotations.deprecated\.daemonset\.template\.generation} {.metadata.generation}`)...); got != want {
			t.Errorf("templates and specifications of the daemon set: %s, want %s", got, want)
		}
	}
	counts("1 1")
	k.run(in("set", "image", "ds/every", "c=i:2")...)
	counts("2 2")
	k.run(in("patch", "ds", "every", "-p", `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"9"}},"spec":{"minReadySeconds":5}}`)...)
	counts("2 3")
	k.fail("the server could not find the requested resource", "", in("patch", "ds", "every", "--subresource=scale", "-p", `{"spec":{"replicas":1}}`)...)
	k.run(in("delete", "ds", "every")...)
}

// kubectlScale is the subresource scale of each kind that has one.
func kubectlScale(t *testing.T, k kubectl) {
	k.run("create", "namespace", "scale")
	in := func(args ...string) []string { return append([]string{"-n", "scale"}, args...) }
	for _, of := range []struct{ apiVersion, kind, resource, selector string }{
		{"apps/v1", "Deployment", "deployments", `{"matchLabels":{"app":"web"}}`},
		{"apps/v1", "ReplicaSet", "replicasets", `{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}`},
		{"apps/v1", "StatefulSet", "statefulsets", `{"matchLabels":{"app":"web"}}`},
		{"v1", "ReplicationController", "replicationcontrollers", `{"app":"web"}`},
	} {
		t.Run(of.kind, func(t *testing.T) {
			k := k
			k.t = t
			k.feed(workload(of.apiVersion, of.kind, "web", of.selector), in("apply", "--server-side", "--field-manager=me", "-f", "-")...)
			replicas := func() string {
				t.Helper()
				return k.run(in("get", of.resource, "web", "-o", "jsonpath={.spec.replicas} {.metadata.generation}")...)
			}
			k.run(in("scale", of.resource, "web", "--current-replicas=2", "--replicas=5")...)
			if got := replicas(); got != "5 2" {
				t.Errorf("replicas and generation are %s, want 5 2", got)
			}
			k.fail("Expected replicas to be 2, was 5", "", in("scale", of.resource, "web", "--current-replicas=2", "--replicas=1")...)
			k.fail("spec.replicas: Invalid value: -1: must be greater than or equal to 0", "", in("patch", of.resource, "web", "--subresource=scale", "-p", `{"spec":{"replicas":-1}}`)...)
			k.fail(`"nobody" not found`, "", in("patch", of.resource, "nobody", "--subresource=scale", "-p", `{"spec":{"replicas":1}}`)...)
			k.run(in("patch", of.resource, "web", "--subresource=scale", "-p", `{"spec":{"replicas":4},"metadata":{"labels":{"a":"b"}}}`)...)
			if got := k.run(in("get", of.resource, "web", "--subresource=scale")...); strings.Join(columns(got)[0], " ") != "NAME DESIRED AVAILABLE AGE" || strings.Join(columns(got)[1][:3], " ") != "web 4 0" {
				t.Errorf("the scale as a table:\n%s", got)
			}
			got := k.run(in("get", of.resource, "web", "--subresource=scale", "-o", "jsonpath={.apiVersion} {.kind} {.status.selector}")...)
			if got != "autoscaling/v1 Scale app=web" && got != "autoscaling/v1 Scale app in (web)" {
				t.Errorf("the scale is %s", got)
			}
			kubectlScaleOwners(t, k, of.resource, in)
			// One that is of another object, or of an older version, is refused.
			raw := k.run(in("get", of.resource, "web", "--subresource=scale", "-o", "json")...)
			k.run(in("scale", of.resource, "web", "--replicas=7")...)
			k.fail("the object has been modified", raw, in("replace", "-f", "-", "--raw", scalePath(of.apiVersion, of.resource))...)
			k.fail("read it again", "", in("patch", of.resource, "web", "--subresource=scale", "-p", `{"metadata":{"uid":"other"}}`)...)
			k.fail("Precondition failed", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"scale","uid":"other"},"spec":{"replicas":1}}`,
				in("replace", "--raw", scalePath(of.apiVersion, of.resource), "-f", "-")...)
			k.feed(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"web","namespace":"scale"},"spec":{}}`,
				in("replace", "--raw", scalePath(of.apiVersion, of.resource), "-f", "-")...)
			if got := replicas(); !strings.HasPrefix(got, "0 ") {
				t.Errorf("a scale without replicas makes it %s", got)
			}
		})
	}
	k.run("delete", "namespace", "scale", "--wait=false")
}

func scalePath(apiVersion, resource string) string {
	if strings.Contains(apiVersion, "/") {
		return "/apis/" + apiVersion + "/namespaces/scale/" + resource + "/web/scale"
	}
	return "/api/" + apiVersion + "/namespaces/scale/" + resource + "/web/scale"
}

// kubectlScaleOwners: who has scaled owns the replicas of the object, so that who applies it is told of the conflict, and takes them back by force.
func kubectlScaleOwners(t *testing.T, k kubectl, resource string, in func(...string) []string) {
	owner := func() (owners []string) {
		t.Helper()
		var obj metav1.PartialObjectMetadata
		if err := json.Unmarshal([]byte(k.run(in("get", resource, "web", "-o", "json", "--show-managed-fields")...)), &obj); err != nil {
			t.Fatal(err)
		}
		for _, f := range obj.ManagedFields {
			if strings.Contains(string(f.FieldsV1.GetRawBytes()), `"f:replicas"`) {
				owners = append(owners, fmt.Sprint(f.Manager, " ", f.Operation, " ", f.Subresource))
			}
		}
		return owners
	}
	if got := owner(); len(got) != 1 || !strings.HasSuffix(got[0], " Update scale") {
		t.Errorf("after it was scaled its replicas are of %q", got)
	}
	applied := k.run(in("get", resource, "web", "-o", "jsonpath={.apiVersion} {.kind}")...)
	apiVersion, kind, _ := strings.Cut(applied, " ")
	selector := k.run(in("get", resource, "web", "-o", "jsonpath={.spec.selector}")...)
	object := workload(apiVersion, kind, "web", selector)
	k.fail(".spec.replicas", object, in("apply", "--server-side", "--field-manager=me", "-f", "-")...)
	k.feed(object, in("apply", "--server-side", "--field-manager=me", "--force-conflicts", "-f", "-")...)
	if got := owner(); len(got) != 1 || got[0] != "me Apply " {
		t.Errorf("after it was applied its replicas are of %q", got)
	}
}
