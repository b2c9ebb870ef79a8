package apiserver_test

import (
	"slices"
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
	for name, test := range map[string]func(*testing.T, kubectl){"priority": kubectlPriority, "runtime": kubectlRuntimeClass, "limits": kubectlLimits, "ingress": kubectlIngress} {
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

// kubectlLimits are the limit ranges of a namespace. Containers get what they leave out, and an annotation that tells so.
func kubectlLimits(t *testing.T, k kubectl) {
	k.run("create", "namespace", "limits")
	k.feed(`{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"cpu"},"spec":{"limits":[
		{"type":"Container","min":{"cpu":"100m"},"max":{"cpu":"2"},"default":{"cpu":"1"},"maxLimitRequestRatio":{"cpu":"4"}},
		{"type":"Pod","max":{"memory":"1Gi"}}]}}`, "-n", "limits", "create", "-f", "-")
	if got := columns(k.run("-n", "limits", "get", "limits")); strings.Join(got[0], " ") != "NAME CREATED AT" || got[1][0] != "cpu" {
		t.Errorf("limit ranges %q", got)
	}
	if got := k.run("-n", "limits", "describe", "limitrange", "cpu"); !strings.Contains(strings.Join(strings.Fields(got), " "), "Container cpu 100m 2 1 1 4") {
		t.Errorf("described as\n%s", got)
	}
	pod := func(cpu, memory string) string {
		list := ""
		if cpu != "" {
			list = `"cpu":"` + cpu + `",`
		}
		return strings.NewReplacer("CPU", list, "MEM", memory).Replace(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{
			"initContainers":[{"name":"i","image":"i","resources":{"limits":{"cpu":"200m"}}}],
			"containers":[{"name":"c","image":"i","resources":{"limits":{CPU"memory":"MEM"}}}]}}`)
	}
	create := []string{"-n", "limits", "create", "-f", "-"}
	k.fail("maximum cpu usage per Container is 2, but limit is 3", pod("3", "1Gi"), create...)
	k.fail("minimum cpu usage per Container is 100m, but request is 50m", pod("50m", "1Gi"), create...)
	k.fail("maximum memory usage per Pod is 1Gi, but limit is 2Gi", pod("1", "2Gi"), create...)
	k.fail("maximum memory usage per Pod is 1Gi.  No limit is specified", podWith("p", ""), create...)
	k.fail("[maximum cpu usage per Container is 2, but limit is 3, maximum memory usage per Pod is 1Gi, but limit is 2Gi]", pod("3", "2Gi"), create...)
	k.fail("cpu max limit to request ratio per Container is 4, but provided ratio is 10.000000",
		strings.Replace(pod("1", "1Gi"), `"resources":{"limits":{"cpu":"1"`, `"resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"1"`, 1), create...)
	k.feed(pod("", "1Gi"), create...)
	const want = `{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}} {"limits":{"cpu":"200m"},"requests":{"cpu":"200m"}} ` +
		`LimitRanger plugin set: cpu request for container c; cpu limit for container c`
	got := k.run("-n", "limits", "get", "pod", "p", "-o",
		`jsonpath={.spec.containers[0].resources} {.spec.initContainers[0].resources} {.metadata.annotations.kubernetes\.io/limit-ranger}`)
	if got != want {
		t.Errorf("the pod got\n%s, want\n%s", got, want)
	}
	k.run("-n", "limits", "label", "pod", "p", "a=b") // what is there stays
	k.run("delete", "namespace", "limits", "--wait=false")
}

// kubectlIngress: an Ingress without a class gets the newest of the default ones.
func kubectlIngress(t *testing.T, k kubectl) {
	k.run("create", "namespace", "ingress")
	k.run("-n", "ingress", "create", "ingress", "bare", "--rule=a.example.com/*=web:80")
	k.feed(`{"apiVersion":"networking.k8s.io/v1","kind":"IngressClass","metadata":{"name":"usual","annotations":{"ingressclass.kubernetes.io/is-default-class":"true"}},
		"spec":{"controller":"example.com/one"}}`, "create", "-f", "-")
	k.run("-n", "ingress", "create", "ingress", "plain", "--rule=a.example.com/*=web:http")
	k.run("-n", "ingress", "create", "ingress", "own", "--class=mine", "--default-backend=web:80")
	var got []string
	for _, row := range columns(k.run("-n", "ingress", "get", "ing", "--no-headers")) {
		got = append(got, strings.Join(row[:3], " "))
	}
	if want := "bare <none> a.example.com;own mine *;plain usual a.example.com"; strings.Join(got, ";") != want {
		t.Errorf("ingresses %q, want %q", got, want)
	}
	k.run("-n", "ingress", "patch", "ing", "own", "--subresource=status", "--type=merge", "-p", `{"spec":{"ingressClassName":"other"},"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.7"}]}}}`)
	if got := k.run("-n", "ingress", "get", "ing", "own", "-o", "jsonpath={.spec.ingressClassName} {.status.loadBalancer.ingress[0].ip} {.metadata.generation}"); got != "mine 192.0.2.7 1" {
		t.Errorf("after a change of the status: %s", got)
	}
	k.fail("must be a valid IP address", "", "-n", "ingress", "patch", "ing", "own", "--subresource=status", "--type=merge", "-p",
		`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.07"}]}}}`)
	k.run("-n", "ingress", "create", "ingress", "secure", "--rule=b.example.com/api*=web:80,tls=cert")
	says := func(want []string, args ...string) {
		t.Helper()
		out := k.run(args...)
		var lines []string
		for _, row := range columns(out) {
			lines = append(lines, strings.Join(row, " "))
		}
		for _, w := range want {
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, w) }) {
				t.Errorf("kubectl %s does not say %q:\n%s", strings.Join(args, " "), w, out)
			}
		}
	}
	says([]string{"ingress.networking.k8s.io/own mine * 192.0.2.7 80 ", "ingress.networking.k8s.io/secure usual b.example.com 80, 443 ",
		"ingressclass.networking.k8s.io/usual (default) example.com/one <none> "}, "-n", "ingress", "get", "ingress,ingressclass", "--no-headers")
	says([]string{"Address: 192.0.2.7", "Ingress Class: mine", "Default backend: web:80 ("}, "-n", "ingress", "describe", "ingress", "own")
	says([]string{"cert terminates b.example.com", "/api web:80 (", "Events: <none>"}, "-n", "ingress", "describe", "ingress", "secure")
	says([]string{"Annotations: ingressclass.kubernetes.io/is-default-class: true", "Controller: example.com/one"}, "describe", "ingressclass", "usual")
	k.run("delete", "namespace", "ingress", "--wait=false")
	k.run("delete", "ingressclass", "usual")
}
