package binder

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gadget is another device resource.
const gadget = "example.com/gadget"

// named is a pod that asks for something.
func named(name string, requests ...string) *corev1.Pod {
	return podWith(func(p *corev1.Pod) { p.Name = name }, requests...)
}

// at is a node with four CPUs, two widgets and two gadgets, and pods.
func at(name string, pods ...*corev1.Pod) place {
	return place{nodeWith(func(n *corev1.Node) {
		n.Name = name
		n.Status.Allocatable = list("cpu", "4", "pods", "10", widget, "2", gadget, "2")
	}), pods, nil}
}

// ill has two widgets, of which so many are healthy.
func ill(healthy int) place {
	return place{nodeWith(func(n *corev1.Node) {
		n.Status.Capacity = list(widget, "2")
		n.Status.Allocatable[widget] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}), nil, nil}
}

// none has no widgets, and has heard of them.
func none() place {
	return place{nodeWith(func(n *corev1.Node) {
		n.Status.Capacity, n.Status.Allocatable[widget] = list(widget, "0"), list(widget, "0")[widget]
	}), nil, nil}
}

// saying is a place whose node says what is wrong with its devices.
func saying(at place, faults string) place {
	at.node.Annotations = map[string]string{deviceFaults: faults}
	return at
}

// waitsThere has a node, and waits there for its devices.
func waitsThere(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.NodeName, pod.Status.StartTime = "n", &metav1.Time{}
	pod.Status.Conditions = []corev1.PodCondition{{Type: devicesReady, Status: corev1.ConditionFalse}}
	return pod
}

func TestChoose(t *testing.T) {
	one, two, three := named("one", widget, "1"), named("two", widget, "2"), named("three", widget, "3")
	const (
		insufficient = "0/1 nodes are available: 1 Insufficient example.com/widget."
		kept         = "0/1 nodes are available: 1 node(s) kept example.com/widget for pod default/two, which came first."
	)
	elsewhere := named("elsewhere", widget, "2")
	elsewhere.Spec.NodeSelector = map[string]string{"disk": "tape"}
	port := podWith(func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80}} })
	wantsPort := named("two", widget, "1")
	wantsPort.Spec.Containers[0].Ports = port.Spec.Containers[0].Ports
	hasPort := one.DeepCopy()
	hasPort.Spec.Containers[0].Ports = port.Spec.Containers[0].Ports
	initial := named("two")
	initial.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list(widget, "2")}}}

	fast := func(name string, pods ...*corev1.Pod) place {
		p := at(name, pods...)
		p.node.Labels = map[string]string{"disk": "nvme", "cores": "8"}
		return p
	}
	small := func(name string) place {
		p := at(name)
		p.node.Labels = map[string]string{"cores": "2"}
		return p
	}
	both := prefers(10, term("disk", "In", "nvme"), term("cores", "Gt", "4"))

	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		older  []*corev1.Pod
		places []place
		want   string // the node's name, or why there is none
	}{
		{name: "no nodes", pod: one, want: "no nodes available to schedule pods"},
		{name: "the emptier one", pod: one, places: []place{at("a", named("p")), at("b")}, want: "b"},
		{name: "the first by name", pod: one, places: []place{at("b"), at("a")}, want: "a"},
		{name: "the preferred one, though it has more", pod: prefers(1, term("disk", "In", "nvme")), places: []place{at("a"), fast("b", named("p"))}, want: "b"},
		{name: "the one that more is preferred of", pod: both, places: []place{fast("a"), at("b"), small("c")}, want: "a"},
		{name: "one that is preferred, but full", pod: func() *corev1.Pod {
			p := prefers(1, term("disk", "In", "nvme"))
			p.Spec.Containers[0].Resources.Requests = list(widget, "2")
			return p
		}(),
			places: []place{at("a"), fast("b", one)}, want: "a"},
		{name: "of equals the emptier one", pod: both, places: []place{fast("a", named("p")), fast("b")}, want: "b"},
		{name: "a wish that cannot be read is none", pod: prefers(1, term("disk", "Near", "x")), places: []place{fast("b"), at("a")}, want: "a"},
		{name: "free", pod: two, places: []place{at("n")}, want: "n"},
		{name: "in use", pod: two, places: []place{at("n", one)}, want: insufficient},
		{name: "more than there is", pod: three, places: []place{at("n")}, want: insufficient + " No node has 3 of example.com/widget now, so younger pods may start first."},
		{name: "what nobody has heard of", pod: named("p", "a.example/x", "1", widget, "3"), places: []place{at("n")},
			want: "0/1 nodes are available: 1 Insufficient a.example/x, 1 Insufficient example.com/widget. No node offers a.example/x yet; the pod starts when one does." +
				" No node has 3 of example.com/widget now, so younger pods may start first."},
		{name: "a slip of the pen", pod: named("p", "example.com/widgets", "1"), places: []place{at("n"), at("m")},
			want: "0/2 nodes are available: 2 Insufficient example.com/widgets. No node offers example.com/widgets yet (there is " + gadget + ", " + widget + "); the pod starts when one does."},
		{name: "hardware that is away", pod: one, places: []place{saying(none(), `{"example.com/widget":"/dev/w1 does not exist"}`)},
			want: insufficient + " Node n has no example.com/widget now (/dev/w1 does not exist); the pod starts when one has enough."},
		{name: "a plugin that is away", pod: one, places: []place{ill(0)},
			want: insufficient + " Node n has 2 of example.com/widget, of which 2 cannot be granted now; the pod starts when enough can."},
		{name: "the reason of that", pod: one, places: []place{saying(ill(0), `{"example.com/widget":"device \"a\" of w.sock: its plugin has been gone since 14:21"}`)},
			want: insufficient + ` Node n has 2 of example.com/widget, of which 2 cannot be granted now (device "a" of w.sock: its plugin has been gone since 14:21); the pod starts when enough can.`},
		{name: "a reason of other devices", pod: one, places: []place{saying(ill(0), `{"a.example/x":"it is gone"}`)},
			want: insufficient + " Node n has 2 of example.com/widget, of which 2 cannot be granted now; the pod starts when enough can."},
		{name: "a reason that cannot be read", pod: one, places: []place{saying(ill(0), `{"example.com/widget":["x"]}`)},
			want: insufficient + " Node n has 2 of example.com/widget, of which 2 cannot be granted now; the pod starts when enough can."},
		{name: "a long reason", pod: one, places: []place{saying(ill(0), `{"example.com/widget":"`+strings.Repeat("ä", 5000)+`"}`)},
			want: insufficient + " Node n has 2 of example.com/widget, of which 2 cannot be granted now (" + strings.Repeat("ä", 200) + "...); the pod starts when enough can."},
		{name: "more than there is, as some are away", pod: three, places: []place{saying(ill(1), `{"example.com/widget":"/dev/w2 does not exist"}`)},
			want: insufficient + " No node has 3 of example.com/widget now, so younger pods may start first; node n says: /dev/w2 does not exist."},
		{name: "unhealthy ones beside others", pod: two, places: []place{ill(1), at("m", one)},
			want: "0/2 nodes are available: 2 Insufficient example.com/widget."},
		{name: "unhealthy ones alone", pod: two, places: []place{ill(1)},
			want: insufficient + " Node n has 2 of example.com/widget, of which 1 cannot be granted now; the pod starts when enough can."},
		{name: "what is kept for one that is bound and waits", pod: one, places: []place{at("n", waitsThere(two))},
			want: insufficient + " example.com/widget is kept for pod default/two, which came first."},
		{name: "less is had by nobody else", pod: three, places: []place{at("n"), {nodeWith(func(n *corev1.Node) { n.Status.Allocatable[widget] = list("x", "3")["x"]; n.Spec.Unschedulable = true }), nil, nil}},
			want: "0/2 nodes are available: 1 Insufficient example.com/widget, 1 node(s) were unschedulable."},

		{name: "an older one waits for more", pod: one, older: []*corev1.Pod{two}, places: []place{at("n", one)}, want: kept},
		{name: "an older one is about to get them", pod: one, older: []*corev1.Pod{two}, places: []place{at("n")}, want: kept},
		{name: "the oldest is named", pod: one, older: []*corev1.Pod{two, named("next", widget, "2")}, places: []place{at("n", one)}, want: kept},
		{name: "for its init container", pod: one, older: []*corev1.Pod{initial}, places: []place{at("n", one)}, want: kept},
		{name: "with other devices too", pod: one, older: []*corev1.Pod{named("two", widget, "1", gadget, "2")}, places: []place{at("n", named("g", gadget, "1"))}, want: kept},
		{name: "the older one waits for other devices", pod: one, older: []*corev1.Pod{named("g", gadget, "2")}, places: []place{at("n", named("h", gadget, "1"))}, want: "n"},
		{name: "the younger one wants no devices", pod: named("p", "cpu", "1"), older: []*corev1.Pod{two}, places: []place{at("n", one)}, want: "n"},
		{name: "the older one asks for more than there is", pod: one, older: []*corev1.Pod{three}, places: []place{at("n", one)}, want: "n"},
		{name: "and one behind it does not", pod: one, older: []*corev1.Pod{three, two}, places: []place{at("n", one)}, want: kept},
		{name: "the older one belongs elsewhere", pod: one, older: []*corev1.Pod{elsewhere}, places: []place{at("n", one)}, want: "n"},
		{name: "the older one waits for a CPU that others have", pod: one, older: []*corev1.Pod{named("two", widget, "1", "cpu", "2")},
			places: []place{at("n", named("busy", "cpu", "3"))}, want: "n"},
		{name: "the older one waits for a CPU that those have who have the devices", pod: one, older: []*corev1.Pod{named("two", widget, "2", "cpu", "4")},
			places: []place{at("n", named("busy", widget, "1", "cpu", "2"))}, want: kept},
		{name: "so with ports", pod: one, older: []*corev1.Pod{wantsPort}, places: []place{at("n", hasPort)}, want: kept},
		{name: "a port that others have", pod: one, older: []*corev1.Pod{wantsPort}, places: []place{at("n", port)}, want: "n"},

		{name: "the emptier node", pod: one, places: []place{at("b", named("x"), named("y")), at("c", named("x")), at("a", named("x"))}, want: "a"},
		{name: "the node with free devices, however full", pod: one, places: []place{at("a", two), at("b", named("x"), named("y"))}, want: "b"},
		{name: "an older one may get them on either", pod: one, older: []*corev1.Pod{two}, places: []place{at("a", one), at("b", one)},
			want: "0/2 nodes are available: 2 node(s) kept example.com/widget for pod default/two, which came first."},
		{name: "an older one belongs to one of two", pod: one, older: []*corev1.Pod{elsewhere}, places: []place{at("a", one), func() place {
			p := at("b", one)
			p.node.Labels = map[string]string{"disk": "tape"}
			return p
		}()}, want: "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, lacks := choose(tc.pod, cluster{places: tc.places}, tc.older)
			if got == "" {
				got = explain(tc.pod, tc.places, lacks)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	busy := at("n", named("x", "cpu", "4"))
	cordoned := at("m")
	cordoned.node.Spec.Unschedulable = true
	full := at("o", named("x", "cpu", "4"))
	full.node.Status.Allocatable["pods"] = list("pods", "1")["pods"]
	pod := named("p", "cpu", "1")
	places := []place{busy, cordoned, full}
	_, lacks := choose(pod, cluster{places: places}, nil)
	if got, want := explain(pod, places, lacks), "0/3 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 2 Insufficient cpu."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if lacksDevices(lacks) {
		t.Error("it waits for devices")
	}
}

func TestLine(t *testing.T) {
	var l line
	old, z, a := named("old"), named("z"), named("a")
	old.UID, z.UID, a.UID = "old", "z", "a"
	old.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
	z.CreationTimestamp = metav1.NewTime(time.Unix(2, 0))
	a.CreationTimestamp = z.CreationTimestamp
	for _, p := range []*corev1.Pod{z, a, old, z} {
		l.enter(p)
	}
	names := func(some []*waiter) (names []string) {
		for _, p := range inOrder(some) {
			names = append(names, p.Name)
		}
		return names
	}
	if got := names(l.all()); !slices.Equal(got, []string{"old", "z", "a"}) {
		t.Errorf("who was created first, and of one second who was seen first, comes first: %v", got)
	}
	if got := names(l.before(a)); !slices.Equal(got, []string{"old", "z"}) {
		t.Errorf("before a come %v", got)
	}
	l.keep(a.UID, true)
	l.keep(z.UID, true)
	l.keep(a.UID, false)
	if got := names(l.keptOnes()); !slices.Equal(got, []string{"z"}) {
		t.Errorf("kept are %v", got)
	}
	l.leave(z.UID)
	l.keep(z.UID, true)
	if got := names(l.keptOnes()); len(got) != 0 {
		t.Errorf("who has left is kept: %v", got)
	}
	l.enter(z)
	if got := names(l.before(z)); !slices.Equal(got, []string{"old", "a"}) {
		t.Errorf("who has left comes last, after %v", got)
	}
}
