package apiserver_test

import (
	"strings"
	"testing"
)

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"NAME"},"spec":{MORE"containers":[{"name":"c","image":"i"}]}}`

func podWith(name, more string) string {
	return strings.NewReplacer("NAME", name, "MORE", more).Replace(podJSON)
}

func TestKubectlClasses(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	for name, test := range map[string]func(*testing.T, kubectl){"priority": kubectlPriority, "runtime": kubectlRuntimeClass} {
		t.Run(name, func(t *testing.T) { test(t, i.kubectl(t)) })
	}
}

func kubectlPriority(t *testing.T, k kubectl) {
	k.run("create", "namespace", "priority")
	k.run("create", "priorityclass", "high", "--value=1000", "--preemption-policy=Never", "--description=first")
	table := columns(k.run("get", "pc", "--no-headers"))
	var names []string
	for _, row := range table {
		names = append(names, strings.Join(append(row[:3:3], row[4]), " "))
	}
	want := []string{"high 1000 false Never", "system-cluster-critical 2000000000 false PreemptLowerPriority", "system-node-critical 2000001000 false PreemptLowerPriority"}
	if strings.Join(names, ";") != strings.Join(want, ";") {
		t.Errorf("priority classes %q, want %q", names, want)
	}
	got := func(pod string) string {
		return k.run("-n", "priority", "get", "pod", pod, "-o", "jsonpath={.spec.priorityClassName} {.spec.priority} {.spec.preemptionPolicy}")
	}
	create := []string{"-n", "priority", "create", "-f", "-"}
	k.feed(podWith("none", ""), create...)
	k.feed(podWith("high", `"priorityClassName":"high",`), create...)
	for pod, want := range map[string]string{"none": " 0 PreemptLowerPriority", "high": "high 1000 Never"} {
		if got := got(pod); got != want {
			t.Errorf("pod %s: %q, want %q", pod, got, want)
		}
	}
	k.fail("no PriorityClass with name absent was found", podWith("a", `"priorityClassName":"absent",`), create...)
	k.fail("must not be provided in pod spec; priority admission controller computed 1000", podWith("a", `"priorityClassName":"high","priority":7,`), create...)
	k.run("create", "priorityclass", "usual", "--value=10", "--global-default=true")
	k.fail("PriorityClass usual is already marked as default", "", "create", "priorityclass", "second", "--value=1", "--global-default=true")
	k.feed(podWith("default", ""), create...)
	if got := got("default"); got != "usual 10 PreemptLowerPriority" {
		t.Errorf("pod of the default class: %q", got)
	}
	k.run("-n", "priority", "label", "pod", "high", "a=b") // it was made without the fields that it has now
	k.fail("this is a system priority class and cannot be deleted", "", "delete", "pc", "system-node-critical")
	k.fail("this is a system priority class and cannot be deleted", "", "delete", "pc", "--all")
	k.run("delete", "namespace", "priority", "--wait=false")
}

func kubectlRuntimeClass(t *testing.T, k kubectl) {
	k.run("create", "namespace", "runtime")
	k.feed(`{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"small"},"handler":"runc","overhead":{"podFixed":{"cpu":"10m"}},
		"scheduling":{"nodeSelector":{"disk":"ssd"},"tolerations":[{"key":"a","operator":"Exists"}]}}`, "create", "-f", "-")
	if got := columns(k.run("get", "runtimeclass", "--no-headers")); got[0][0] != "small" || got[0][1] != "runc" {
		t.Errorf("runtime classes %q", got)
	}
	create := []string{"-n", "runtime", "create", "-f", "-"}
	k.feed(podWith("p", `"runtimeClassName":"small",`), create...)
	if got := k.run("-n", "runtime", "get", "pod", "p", "-o", "jsonpath={.spec.overhead} {.spec.nodeSelector} {.spec.tolerations[0].key}"); got != `{"cpu":"10m"} {"disk":"ssd"} a` {
		t.Errorf("the pod got %s", got)
	}
	k.fail(`pod rejected: RuntimeClass "absent" not found`, podWith("a", `"runtimeClassName":"absent",`), create...)
	k.fail("conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; pod.spec.nodeSelector[disk] = hdd", podWith("a", `"runtimeClassName":"small","nodeSelector":{"disk":"hdd"},`), create...)
	k.fail("Pod Overhead set without corresponding RuntimeClass defined Overhead", podWith("a", `"overhead":{"cpu":"1"},`), create...)
	k.fail("doesn't match RuntimeClass's defined Overhead", podWith("a", `"runtimeClassName":"small","overhead":{"cpu":"1"},`), create...)
	k.run("delete", "namespace", "runtime", "--wait=false")
}
