package binder

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// spreadBy is a constraint about the pods of the app web.
func spreadBy(topology, more string) string {
	return fmt.Sprintf("{maxSkew: 1, topologyKey: %s, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}%s}", topology, more)
}

func spreads(constraints string) string { return "topologySpreadConstraints: [" + constraints + "]" }

// copies are so many of a pod.
func copies(n int, pod *corev1.Pod) (all []*corev1.Pod) {
	for range n {
		all = append(all, pod)
	}
	return all
}

// TestSpread is about where a pod can be for the sake of its constraints.
func TestSpread(t *testing.T) {
	web := like("web", "")
	crowd := func(n int) []*corev1.Pod { return copies(n, web) }
	byZone, byHost := like("web", spreads(spreadBy("zone", ""))), like("web", spreads(spreadBy("host", "")))
	const (
		no      = " node(s) didn't match pod topology spread constraints."
		missing = " node(s) didn't match pod topology spread constraints (missing required label)."
	)
	full := func(zone, name string, pods ...*corev1.Pod) place {
		p := in(zone, name, pods...)
		p.node.Status.Allocatable["pods"] = list("pods", "1")["pods"]
		return p
	}
	tainted := func(p place) place {
		p.node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		return p
	}
	disk := func(p place) place {
		p.node.Labels["disk"] = "ssd"
		return p
	}
	const onDisks = ", nodeSelector: {disk: ssd}"
	runChosen(t, []chosenCase{
		{name: "the zone with fewer", pod: byZone, places: []place{in("a", "a1", web), in("b", "b1", like("db", ""), like("db", ""))}, want: "b1"},
		{name: "any of zones with the same", pod: byZone, places: []place{in("a", "a1", web), in("b", "b1", web)}, want: "a1"},
		{name: "a zone is all of its nodes", pod: byZone, places: []place{in("a", "a1"), in("a", "a2", web), in("b", "b1", like("db", ""))}, want: "b1"},
		{name: "the only zone", pod: byZone, places: []place{in("a", "a1", crowd(5)...)}, want: "a1"},
		{name: "the one with fewer is full", pod: byZone, places: []place{in("a", "a1", crowd(2)...), full("b", "b1", web)}, want: "0/2 nodes are available: 1 Too many pods, 1" + no},
		{name: "a wider skew", pod: like("web", spreads("{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}")),
			places: []place{in("a", "a1", crowd(2)...), full("b", "b1", web)}, want: "a1"},
		{name: "a wider skew is reached", pod: like("web", spreads("{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}")),
			places: []place{in("a", "a1", crowd(3)...), full("b", "b1", web)}, want: "0/2 nodes are available: 1 Too many pods, 1" + no},
		{name: "by host", pod: byHost, places: []place{in("a", "a1", web), in("a", "a2", like("db", ""), like("db", ""))}, want: "a2"},

		{name: "who is ending makes room", pod: byZone, places: []place{in("a", "a1", ending(web), ending(web)), in("b", "b1", web)}, want: "a1"},
		{name: "others' namespaces", pod: byZone, places: []place{in("a", "a1", elsewhere("red", web), elsewhere("red", web)), in("b", "b1", web)}, want: "a1"},
		{name: "a pod that is no web itself", pod: like("db", spreads(spreadBy("zone", ""))), places: []place{in("a", "a1", web), full("b", "b1", like("x", ""))}, want: "a1"},
		{name: "but not where there are too many", pod: like("db", spreads(spreadBy("zone", ""))), places: []place{in("a", "a1", crowd(2)...), full("b", "b1", like("x", ""))},
			want: "0/2 nodes are available: 1 Too many pods, 1" + no},
		{name: "all pods", pod: like("web", spreads("{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}")),
			places: []place{in("a", "a1", like("x", ""), like("y", "")), in("b", "b1")}, want: "b1"},
		{name: "no pods", pod: like("web", spreads("{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}")), places: []place{in("a", "a1", crowd(3)...), full("b", "b1", like("x", ""))}, want: "a1"},

		{name: "no zone", pod: byZone, places: []place{in("", "n")}, want: "0/1 nodes are available: 1" + missing},
		{name: "a node of no zone", pod: byZone, places: []place{in("", "n"), in("a", "a1", web)}, want: "a1"},
		{name: "no zone, and too many", pod: byZone, places: []place{in("", "n"), in("a", "a1", crowd(2)...), full("b", "b1", web)},
			want: "0/3 nodes are available: 1 Too many pods, 1 node(s) didn't match pod topology spread constraints, 1" + missing},
		{name: "zone and host", pod: like("web", spreads(spreadBy("zone", "")+", "+spreadBy("host", ""))), places: []place{in("a", "a1", web), in("a", "a2"), in("b", "b1", web), in("b", "b2", like("x", ""))}, want: "a2"},
		{name: "the zone says one thing and the host another", pod: like("web", spreads(spreadBy("zone", "")+", "+spreadBy("host", ""))),
			places: []place{in("a", "a1", web), in("a", "a2", web), in("b", "b1", web), full("b", "b2", like("x", ""))}, want: "0/4 nodes are available: 1 Too many pods, 3" + no},
		{name: "nodes without one of the labels do not count", pod: like("web", spreads(spreadBy("zone", "")+", "+spreadBy("host", ""))), places: []place{
			func() place { p := in("c", "c1"); delete(p.node.Labels, "host"); return p }(), in("a", "a1", web)}, want: "a1"},

		{name: "too few domains", pod: like("web", spreads(spreadBy("zone", ", minDomains: 3"))), places: []place{in("a", "a1", web), in("b", "b1", web)}, want: "0/2 nodes are available: 2" + no},
		{name: "too few domains, one is empty", pod: like("web", spreads(spreadBy("zone", ", minDomains: 3"))), places: []place{in("a", "a1", web), in("b", "b1")}, want: "b1"},
		{name: "enough domains", pod: like("web", spreads(spreadBy("zone", ", minDomains: 2"))), places: []place{in("a", "a1", web), in("b", "b1", web)}, want: "a1"},

		{name: "nodes that the pod does not want", pod: like("web", spreads(spreadBy("zone", ""))+onDisks), places: []place{disk(in("a", "a1", crowd(2)...)), in("b", "b1")}, want: "a1"},
		{name: "count if it says so", pod: like("web", spreads(spreadBy("zone", ", nodeAffinityPolicy: Ignore"))+onDisks), places: []place{disk(in("a", "a1", crowd(2)...)), in("b", "b1")},
			want: "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1" + no},
		{name: "tainted nodes count", pod: byZone, places: []place{in("a", "a1", web), tainted(in("b", "b1"))},
			want: "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) had untolerated taint {dedicated: }."},
		{name: "unless it says otherwise", pod: like("web", spreads(spreadBy("zone", ", nodeTaintsPolicy: Honor"))), places: []place{in("a", "a1", web), tainted(in("b", "b1"))}, want: "a1"},
		{name: "tainted nodes that are tolerated count in any case", pod: like("web", spreads(spreadBy("zone", ", nodeTaintsPolicy: Honor"))+", tolerations: [{operator: Exists}]"),
			places: []place{in("a", "a1", web), tainted(in("b", "b1", like("x", ""), like("x", "")))}, want: "b1"},
		{name: "a cordoned node is as a tainted one", pod: like("web", spreads(spreadBy("zone", ", nodeTaintsPolicy: Honor"))), places: []place{in("a", "a1", web), func() place {
			p := in("b", "b1")
			p.node.Spec.Unschedulable = true
			return p
		}()}, want: "a1"},

		{name: "an older one that has to go elsewhere does not keep devices", pod: named("x", widget, "1"), older: []*corev1.Pod{func() *corev1.Pod {
			p := like("web", spreads(spreadBy("zone", "")))
			p.Spec.Containers = named("x", widget, "2").Spec.Containers
			return p
		}()}, places: []place{in("a", "a1", web), full("b", "b1", like("x", ""))}, want: "a1"},
	})
}

// TestMerit is about what a pod would rather have, of nodes that it can have.
func TestMerit(t *testing.T) {
	web, db, x := like("web", ""), like("db", ""), like("x", "")
	rather := func(kind, terms string) string {
		return fmt.Sprintf("%s: {preferredDuringSchedulingIgnoredDuringExecution: [%s]}", kind, terms)
	}
	weighs := func(weight int, term string) string {
		return fmt.Sprintf("{weight: %d, podAffinityTerm: %s}", weight, term)
	}
	wishes := func(all ...string) string {
		text := ""
		for _, w := range all {
			text += w + ", "
		}
		return "affinity: {" + text + "}"
	}
	ssd := func(weight int) string {
		return rather("nodeAffinity", fmt.Sprintf("{weight: %d, preference: {matchExpressions: [{key: disk, operator: In, values: [ssd]}]}}", weight))
	}
	disk := func(p place) place {
		p.node.Labels["disk"] = "ssd"
		return p
	}
	anyway := func(skew int, topology string) string {
		return fmt.Sprintf("{maxSkew: %d, topologyKey: %s, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}", skew, topology)
	}
	runChosen(t, []chosenCase{
		{name: "rather near", pod: like("web", wishes(rather("podAffinity", weighs(1, to("db", "zone"))))), places: []place{in("a", "a1"), in("b", "b1", x), in("b", "b2", db, x)}, want: "b1"},
		{name: "rather apart", pod: like("web", wishes(rather("podAntiAffinity", weighs(1, to("web", "host"))))), places: []place{in("a", "a1", web), in("a", "a2", x, x)}, want: "a2"},
		{name: "rather apart, where they are everywhere: with the fewest", pod: like("web", wishes(rather("podAntiAffinity", weighs(1, to("web", "host"))))),
			places: []place{in("a", "a1", web, web), in("a", "a2", web, x, x)}, want: "a2"},
		{name: "near to one more than to another", pod: like("web", wishes(rather("podAffinity", weighs(2, to("db", "host"))+", "+weighs(3, to("x", "host"))))), places: []place{in("a", "a1", db), in("a", "a2", x)}, want: "a2"},
		{name: "and two of the other", pod: like("web", wishes(rather("podAffinity", weighs(2, to("db", "host"))+", "+weighs(3, to("x", "host"))))), places: []place{in("a", "a1", db, db), in("a", "a2", x)}, want: "a1"},
		{name: "near to one, and rather not to another", pod: like("web", wishes(rather("podAffinity", weighs(10, to("db", "host"))), rather("podAntiAffinity", weighs(20, to("x", "host"))))),
			places: []place{in("a", "a1", db, x), in("a", "a2", web, web, web)}, want: "a2"},
		{name: "of no zone", pod: like("web", wishes(rather("podAntiAffinity", weighs(1, to("web", "zone"))))), places: []place{in("a", "a1", web), in("", "n", web, x)}, want: "n"},

		{name: "somebody would rather have it near", pod: web, places: []place{in("a", "a1"), in("a", "a2", like("db", wishes(rather("podAffinity", weighs(1, to("web", "host"))))))}, want: "a2"},
		{name: "somebody would rather not", pod: web, places: []place{in("a", "a1", like("db", wishes(rather("podAntiAffinity", weighs(1, to("web", "host")))))), in("a", "a2", x, x)}, want: "a2"},
		{name: "somebody had to be near to such pods", pod: web, places: []place{in("a", "a1"), in("a", "a2", like("db", near(to("web", "host"))))}, want: "a2"},
		{name: "that weighs one", pod: web, places: []place{in("a", "a1", like("db", wishes(rather("podAffinity", weighs(2, to("web", "host")))))), in("a", "a2", like("db", near(to("web", "host"))))}, want: "a1"},

		{name: "rather spread", pod: like("web", spreads(anyway(1, "zone"))), places: []place{in("a", "a1", web), in("a", "a2"), in("b", "b1", x)}, want: "b1"},
		{name: "rather spread, though all have too many", pod: like("web", spreads(anyway(1, "zone"))), places: []place{in("a", "a1", copies(5, web)...), in("b", "b1", copies(9, web)...)}, want: "a1"},
		{name: "rather in a zone, whichever", pod: like("web", spreads(anyway(1, "zone"))), places: []place{in("", "n"), in("b", "b1", web, x)}, want: "b1"},
		{name: "nowhere a zone", pod: like("web", spreads(anyway(1, "zone"))), places: []place{in("", "n", x), in("", "m", web, x)}, want: "n"},
		{name: "spread by hosts of a zone", pod: like("web", spreads(anyway(1, "zone")+", "+anyway(1, "host"))), places: []place{in("a", "a1", web), in("a", "a2"), in("b", "b1", web, web), in("b", "b2", web)}, want: "a2"},
		{name: "who is ending does not count", pod: like("web", spreads(anyway(1, "host"))), places: []place{in("a", "a1", ending(web), x), in("a", "a2", web)}, want: "a1"},

		{name: "nodes weigh what pods weigh: the emptier one", pod: like("web", wishes(ssd(100), rather("podAffinity", weighs(1, to("db", "host"))))), places: []place{disk(in("a", "a1", x, x)), in("a", "a2", db)}, want: "a2"},
		{name: "both", pod: like("web", wishes(ssd(1), rather("podAffinity", weighs(100, to("db", "host"))))), places: []place{in("a", "a0", db), disk(in("a", "a1", x, x)), disk(in("a", "a2", db, x, x))}, want: "a2"},
		{name: "two wishes of three", pod: like("web", wishes(ssd(1), rather("podAntiAffinity", weighs(100, to("web", "host"))))+", "+spreads(anyway(1, "host"))), places: []place{disk(in("a", "a1", web)), in("a", "a2", x)}, want: "a2"},
		{name: "a little more crowded is a little worse", pod: like("web", wishes(ssd(1))+", "+spreads(anyway(1, "host"))), places: []place{disk(in("a", "a1", copies(6, web)...)), in("a", "a2", copies(5, web)...)}, want: "a1"},
		{name: "no wish helps a node that the pod cannot have", pod: like("web", wishes(ssd(100), rather("podAffinity", weighs(100, to("db", "host"))))+", tolerations: []"),
			places: []place{func() place { p := disk(in("a", "a1", db)); p.node.Spec.Unschedulable = true; return p }(), in("a", "a2", x)}, want: "a2"},
	})
}
