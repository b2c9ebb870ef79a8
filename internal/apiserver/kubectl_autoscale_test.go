package apiserver_test

import (
	"strings"
	"testing"
)

// kubectlAutoscale: an autoscaler is the same in both of its versions, whoever writes it in which.
func kubectlAutoscale(t *testing.T, k kubectl) {
	k.run("create", "namespace", "scaled")
	in := func(args ...string) []string { return append([]string{"-n", "scaled"}, args...) }
	k.run(in("create", "deployment", "web", "--image=i")...)
	k.run(in("autoscale", "deployment", "web", "--min=2", "--max=5", "--cpu=60%")...)
	get := func(version, path string) string {
		t.Helper()
		return k.run(in("get", "horizontalpodautoscalers."+version+".autoscaling", "web", "-o", "jsonpath="+path)...)
	}
	if got := get("v1", "{.apiVersion} {.spec.minReplicas} {.spec.maxReplicas} {.spec.targetCPUUtilizationPercentage} {.metadata.generation}"); got != "autoscaling/v1 2 5 60 1" {
		t.Errorf("in v1 it is %q", got)
	}
	k.run(in("patch", "horizontalpodautoscalers.v2.autoscaling", "web", "--type=merge", "-p", `{"spec":{"behavior":{"scaleDown":{"stabilizationWindowSeconds":30}},"metrics":[
		{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":60}}},
		{"type":"Pods","pods":{"metric":{"name":"queue"},"target":{"type":"AverageValue","averageValue":"10"}}}]}}`)...)
	if got := get("v1", "{.metadata.annotations}"); !strings.Contains(got, `autoscaling.alpha.kubernetes.io/behavior`) || !strings.Contains(got, `\"metricName\":\"queue\"`) {
		t.Errorf("v1 carries what it has no fields for in %s", got)
	}
	// Who reads and writes v1 loses nothing.
	k.run(in("patch", "horizontalpodautoscalers.v1.autoscaling", "web", "--type=merge", "-p", `{"spec":{"maxReplicas":7,"targetCPUUtilizationPercentage":70}}`)...)
	if got, want := get("v2", `{.spec.maxReplicas} {.spec.metrics[*].type} {.spec.metrics[?(@.type=="Resource")].resource.target.averageUtilization} `+
		`{.spec.behavior.scaleDown.stabilizationWindowSeconds} {.spec.behavior.scaleUp.selectPolicy} {.metadata.generation} {.metadata.annotations}`), "7 Pods Resource 70 30 Max 3 "; got != want {
		t.Errorf("after a change by v1 v2 is %q, want %q", got, want)
	}
	k.feed("apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: old}\nspec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}\n"+
		"status: {currentReplicas: 9}\n", in("apply", "--server-side", "-f", "-")...)
	if got := k.run(in("get", "hpa", "old", "-o", "jsonpath={.apiVersion} {.spec.minReplicas} {.spec.metrics[0].resource.target.averageUtilization} {.status.currentReplicas}")...); got != "autoscaling/v2 1 80 0" &&
		got != "autoscaling/v2 1 80 " {
		t.Errorf("what was applied in v1 is %q", got)
	}
	if got := k.run(in("get", "hpa", "old", "-o", "jsonpath={.metadata.managedFields}", "--show-managed-fields")...); strings.Contains(got, "currentReplicas") {
		t.Errorf("who applies a specification in v1 owns the status: %s", got)
	}
	k.fail("spec.maxReplicas: Invalid value", "", in("patch", "hpa", "web", "--type=merge", "-p", `{"spec":{"maxReplicas":1}}`)...)
	table := columns(k.run(in("get", "hpa", "web")...))
	if want := "NAME REFERENCE TARGETS MINPODS MAXPODS REPLICAS AGE"; strings.Join(table[0], " ") != want || table[1][1] != "Deployment/web" {
		t.Errorf("get hpa: %q, want the columns %q", table, want)
	}
	if all := k.run(in("get", "all", "-o", "name")...); !strings.Contains(all, "horizontalpodautoscaler.autoscaling/web") {
		t.Errorf("get all has no autoscaler: %s", all)
	}
	k.run("delete", "namespace", "scaled", "--wait=false")
}
