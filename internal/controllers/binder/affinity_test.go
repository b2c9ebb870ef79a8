package binder

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// read makes a pod of YAML: its metadata and its spec.
func read(text string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		panic(err)
	}
	pod.UID = types.UID(pod.Name)
	return pod
}

// like is a pod with the label app, and a spec.
func like(app, spec string) *corev1.Pod {
	return read(fmt.Sprintf("{metadata: {name: %s, labels: {app: %s}}, spec: {%s}}", app, app, spec))
}

// in is a node of a zone with pods; empty: of no zone.
func in(zone, name string, pods ...*corev1.Pod) place {
	p := at(name, pods...)
	p.node.Labels = map[string]string{"host": name}
	if zone != "" {
		p.node.Labels["zone"] = zone
	}
	return p
}

func near(terms string) string { return affinity("podAffinity", terms) }
func far(terms string) string  { return affinity("podAntiAffinity", terms) }
func affinity(kind, terms string) string {
	return fmt.Sprintf("affinity: {%s: {requiredDuringSchedulingIgnoredDuringExecution: [%s]}}", kind, terms)
}

// to is a term about the pods with a label app.
func to(app, topology string) string {
	return fmt.Sprintf("{topologyKey: %s, labelSelector: {matchLabels: {app: %s}}}", topology, app)
}

func ending(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{}
	return pod
}

func elsewhere(namespace string, pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Namespace = namespace
	return pod
}

// chosenCase is a pod, and which node it gets, or why none.
type chosenCase struct {
	name   string
	pod    *corev1.Pod
	older  []*corev1.Pod
	places []place
	want   string
}

// teams are namespaces with labels.
func teams(name string) map[string]string {
	return map[string]map[string]string{"default": {"team": "red"}, "red": {"team": "red"}, "blue": {"team": "blue"}}[name]
}

func runChosen(t *testing.T, cases []chosenCase) {
	t.Helper()
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got, lacks := choose(tc.pod, cluster{places: tc.places, namespaces: teams}, tc.older)
			if got == "" {
				got = explain(tc.pod, tc.places, lacks)
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestCompany is about where a pod can be for the sake of others.
func TestCompany(t *testing.T) {
	web, db := like("web", ""), like("db", "")
	const (
		noNear   = " node(s) didn't match pod affinity rules."
		noFar    = " node(s) didn't match pod anti-affinity rules."
		noOthers = " node(s) didn't satisfy existing pods anti-affinity rules."
	)
	group := like("web", near(to("web", "zone")))
	loner := like("web", far(to("web", "host")))
	gpu := func(app, spec string) *corev1.Pod {
		p := like(app, spec)
		p.Spec.Containers = named("x", widget, "2").Spec.Containers
		return p
	}
	one := func(app string) *corev1.Pod {
		p := like(app, "")
		p.Spec.Containers = named("x", widget, "1").Spec.Containers
		return p
	}
	runChosen(t, []chosenCase{
		{name: "beside another one", pod: like("web", near(to("db", "host"))), places: []place{in("a", "a1"), in("a", "a2", db)}, want: "a2"},
		{name: "in the zone of another one", pod: like("web", near(to("db", "zone"))), places: []place{in("a", "a1"), in("b", "b1", db), in("b", "b2")}, want: "b2"},
		{name: "who is ending is there", pod: like("web", near(to("db", "host"))), places: []place{in("a", "a1"), in("a", "a2", ending(db))}, want: "a2"},
		{name: "there is nobody", pod: like("web", near(to("db", "zone"))), places: []place{in("a", "a1", web), in("b", "b1")}, want: "0/2 nodes are available: 2" + noNear},
		{name: "nobody here", pod: like("web", near(to("db", "zone"))), places: []place{in("a", "a1", elsewhere("red", db))}, want: "0/1 nodes are available: 1" + noNear},
		{name: "on a node of no zone", pod: like("web", near(to("db", "zone"))), places: []place{in("", "n", db)}, want: "0/1 nodes are available: 1" + noNear},
		{name: "two terms, and two pods for them", pod: like("web", near(to("db", "host")+", {topologyKey: zone, labelSelector: {matchLabels: {tier: back}}}")),
			places: []place{in("a", "a1", db, read("{metadata: {name: x, labels: {tier: back}}}"))}, want: "0/1 nodes are available: 1" + noNear},
		{name: "two terms, and one pod", pod: like("web", near(to("db", "host")+", {topologyKey: zone, labelSelector: {matchLabels: {tier: back}}}")),
			places: []place{in("a", "a1"), in("a", "a2", read("{metadata: {name: x, labels: {app: db, tier: back}}}"))}, want: "a2"},
		{name: "two terms, each met in another domain", pod: like("web", near(to("db", "host")+", "+to("db", "zone"))), places: []place{in("a", "a1"), in("a", "a2", db), in("b", "b1")}, want: "a2"},

		{name: "the first of a group", pod: group, places: []place{in("", "a0"), in("a", "a1", db)}, want: "a1"},
		{name: "the first of a group, and nowhere a zone", pod: group, places: []place{in("", "a0")}, want: "0/1 nodes are available: 1" + noNear},
		{name: "the second of a group", pod: group, places: []place{in("a", "a1"), in("b", "b1", web)}, want: "b1"},
		{name: "the second of a group has no room there", pod: gpu("web", near(to("web", "zone"))), places: []place{in("a", "a1"), in("b", "b1", gpu("web", ""))},
			want: "0/2 nodes are available: 1 Insufficient example.com/widget, 1 node(s) didn't match pod affinity rules."},
		{name: "the first of a group beside another namespace's", pod: group, places: []place{in("a", "a1"), in("b", "b1", elsewhere("red", web), elsewhere("red", web))}, want: "a1"},
		{name: "the first that is to be near to others, too", pod: like("web", near(to("web", "zone")+", "+to("db", "zone"))), places: []place{in("a", "a1")}, want: "0/1 nodes are available: 1" + noNear},

		{name: "not beside its like", pod: loner, places: []place{in("a", "a1", web), in("a", "a2", db, db)}, want: "a2"},
		{name: "its like is ending", pod: loner, places: []place{in("a", "a1", ending(web))}, want: "0/1 nodes are available: 1" + noFar},
		{name: "its like everywhere", pod: loner, places: []place{in("a", "a1", web), in("b", "b1", web)}, want: "0/2 nodes are available: 2" + noFar},
		{name: "not in one zone with its like", pod: like("web", far(to("web", "zone"))), places: []place{in("a", "a1", web), in("a", "a2"), in("b", "b1", db)}, want: "b1"},
		{name: "a node of no zone is in none with its like", pod: like("web", far(to("web", "zone"))), places: []place{in("a", "a1", web), in("", "n", web)}, want: "n"},
		{name: "one of two terms", pod: like("web", far(to("db", "host")+", "+to("web", "zone"))), places: []place{in("a", "a1", db), in("b", "b1", web)}, want: "0/2 nodes are available: 2" + noFar},
		{name: "near to one and far from another", pod: read(`{metadata: {labels: {app: web}}, spec: {affinity: {
			podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [` + to("db", "zone") + `]}, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [` + to("web", "host") + `]}}}}`),
			places: []place{in("a", "a1", db, web), in("b", "b1"), in("a", "a2", like("x", ""))}, want: "a2"},

		{name: "somebody wants to be alone", pod: web, places: []place{in("a", "a1", like("db", far(to("web", "host")))), in("a", "a2", db, db)}, want: "a2"},
		{name: "somebody wants to be alone in the zone", pod: web, places: []place{in("a", "a1", like("db", far(to("web", "zone")))), in("a", "a2")}, want: "0/2 nodes are available: 2" + noOthers},
		{name: "and is ending", pod: web, places: []place{in("a", "a1", ending(like("db", far(to("web", "host")))))}, want: "0/1 nodes are available: 1" + noOthers},
		{name: "somebody does not mind it", pod: web, places: []place{in("a", "a1", like("db", far(to("db", "host"))))}, want: "a1"},
		{name: "somebody of another namespace minds its own", pod: web, places: []place{in("a", "a1", elsewhere("red", like("db", far(to("web", "host")))))}, want: "a1"},
		{name: "somebody of another namespace minds all", pod: web, places: []place{in("a", "a1", elsewhere("blue", like("db", far("{topologyKey: host, labelSelector: {}, namespaceSelector: {}}"))))},
			want: "0/1 nodes are available: 1" + noOthers},
		{name: "somebody wants to be near", pod: like("web", far(to("db", "host"))), places: []place{in("a", "a1", like("x", near(to("web", "host"))))}, want: "a1"},
		{name: "what it says itself speaks first", pod: loner, places: []place{in("a", "a1", loner)}, want: "0/1 nodes are available: 1" + noFar},

		{name: "a node that is wrong is not asked for devices", pod: gpu("web", far(to("web", "host"))), places: []place{in("a", "a1", web, gpu("db", ""))}, want: "0/1 nodes are available: 1" + noFar},
		{name: "an older one is kept away by who has the devices", pod: one("x"), older: []*corev1.Pod{gpu("web", far(to("web", "host")))}, places: []place{in("a", "a1", one("web"))},
			want: "0/1 nodes are available: 1 node(s) kept example.com/widget for pod default/web, which came first."},
		{name: "an older one is kept away by others", pod: one("x"), older: []*corev1.Pod{gpu("web", far(to("web", "host")))}, places: []place{in("a", "a1", web)}, want: "a1"},
		{name: "an older one is kept away by who has devices next door", pod: one("x"), older: []*corev1.Pod{gpu("web", far(to("web", "zone")))}, places: []place{in("a", "a1"), in("a", "a2", gpu("web", ""))}, want: "a1"},
	})
}

// TestTerms is about whom a term means.
func TestTerms(t *testing.T) {
	for name, tc := range map[string]struct {
		term string
		want string // the namespaces in which a pod is meant
	}{
		"its own namespace":      {"labelSelector: {matchLabels: {app: web}}", "default"},
		"others":                 {"labelSelector: {matchLabels: {app: web}}, namespaces: [blue, red]", "red blue"},
		"by labels":              {"labelSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: red}}", "default red"},
		"by labels and names":    {"labelSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: red}}, namespaces: [blue]", "default red blue"},
		"all":                    {"labelSelector: {matchLabels: {app: web}}, namespaceSelector: {}", "default red blue unknown"},
		"an empty selector":      {"labelSelector: {}", "default"},
		"no selector":            {"namespaceSelector: {}", ""},
		"another label":          {"labelSelector: {matchLabels: {app: db}}", ""},
		"and another label":      {"labelSelector: {matchLabels: {app: web, tier: back}}", ""},
		"in":                     {"labelSelector: {matchExpressions: [{key: app, operator: In, values: [db, web]}]}", "default"},
		"not in":                 {"labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [db, web]}]}", ""},
		"not in what it has not": {"labelSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [back]}]}", "default"},
		"exists":                 {"labelSelector: {matchExpressions: [{key: app, operator: Exists}, {key: tier, operator: DoesNotExist}]}", "default"},
		"what nobody can read":   {"labelSelector: {matchExpressions: [{key: app, operator: Near}]}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var term corev1.PodAffinityTerm
			if err := yaml.UnmarshalStrict([]byte("{"+tc.term+"}"), &term); err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, namespace := range []string{"default", "red", "blue", "unknown"} {
				if namespaces(teams).means(like("x", ""), &term, elsewhere(namespace, like("web", ""))) {
					got += " " + namespace
				}
			}
			if got = strings.TrimSpace(got); got != tc.want {
				t.Errorf("means those in %q, want %q", got, tc.want)
			}
		})
	}
	if !namespaces(nil).means(like("x", ""), &corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}}, like("y", "")) {
		t.Error("where nothing is known of namespaces, not even all are meant")
	}
}

// TestWhoMinds is about whom a change of another pod, or of a namespace, may give a node.
func TestWhoMinds(t *testing.T) {
	web := like("web", "")
	for name, tc := range map[string]struct {
		spec             string
		minds, ofTheName bool
	}{
		"nobody":                  {"", false, false},
		"near":                    {near(to("web", "zone")), true, false},
		"far":                     {far(to("web", "zone")), true, false},
		"near to others":          {near(to("db", "zone")), false, false},
		"would like to be near":   {"affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: " + to("web", "zone") + "}]}}", false, false},
		"near to a team's":        {near("{topologyKey: zone, labelSelector: {}, namespaceSelector: {matchLabels: {team: red}}}"), true, true},
		"far from another team's": {far("{topologyKey: zone, labelSelector: {}, namespaceSelector: {matchLabels: {team: blue}}}"), false, true},
		"spread":                  {"topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]", true, false},
		"spread among others":     {"topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: db}}}]", false, false},
		"would like to be spread": {"topologySpreadConstraints: [{whenUnsatisfiable: ScheduleAnyway, labelSelector: {}}]", false, false},
		"spread, with nobody":     {"topologySpreadConstraints: [{whenUnsatisfiable: DoNotSchedule}]", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := like("x", tc.spec)
			if got := namespaces(teams).minds(pod, web); got != tc.minds {
				t.Errorf("minds the pod: %v, want %v", got, tc.minds)
			}
			if got := mindsNamespaces(pod); got != tc.ofTheName {
				t.Errorf("minds namespaces: %v, want %v", got, tc.ofTheName)
			}
		})
	}
}

// BenchmarkChoose is a decision among ten nodes with a hundred pods each.
func BenchmarkChoose(b *testing.B) {
	apart := `affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: ` + to("web", "host") + `}]}}`
	for name, tc := range map[string]struct{ pod, others string }{
		"nobody asks for others":                {"", ""},
		"one would rather be apart":             {apart, ""},
		"all would rather be apart":             {apart, apart},
		"all would rather be apart from others": {"", apart},
		"one is spread":                         {spreads(spreadBy("zone", "")), ""},
	} {
		b.Run(name, func(b *testing.B) {
			var c cluster
			for i := range 10 {
				p := in("z", fmt.Sprint("n", i))
				for range 100 {
					p.pods = append(p.pods, like("web", tc.others))
				}
				p.node.Status.Allocatable["pods"] = list("pods", "1k")["pods"]
				c.places = append(c.places, p)
			}
			pod := like("web", tc.pod)
			for b.Loop() {
				if name, _ := choose(pod, c, nil); name == "" {
					b.Fatal("no node")
				}
			}
		})
	}
}
