package deployment

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}},
	}
}

// deployment is one of the image "new" that rolls with surge and unavailability as given; "" for both: it recreates.
func deployment(replicas int32, surge, unavailable string) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "n", UID: "d", Generation: 1},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}, Template: template("new"),
			Strategy:                appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			ProgressDeadlineSeconds: new(int32), RevisionHistoryLimit: new(int32),
		},
	}
	*d.Spec.ProgressDeadlineSeconds, *d.Spec.RevisionHistoryLimit = 600, 10
	if surge != "" {
		more, less := intstr.Parse(surge), intstr.Parse(unavailable)
		d.Spec.Strategy = appsv1.DeploymentStrategy{
			Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &more, MaxUnavailable: &less},
		}
	}
	return d
}

// set is a replica set in short: its image, how many pods it is to have, has, and has available; then what differs from one of a deployment of ten that may
// surge by three.
func set(age int, image string, size, has, available int32, change ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: "d-" + image, Namespace: "n", UID: "rs", Generation: 1, CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Hour)),
			Annotations: map[string]string{desiredAnnotation: "10", maximumAnnotation: "13", revisionAnnotation: strconv.Itoa(100 - age)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &size, Template: template(image)},
		Status: appsv1.ReplicaSetStatus{
			Replicas: has, ReadyReplicas: available, AvailableReplicas: available, ObservedGeneration: 1, TerminatingReplicas: new(int32),
		},
	}
	for _, c := range change {
		c(rs)
	}
	return rs
}

func by(desired, maximum int) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Annotations[desiredAnnotation], rs.Annotations[maximumAnnotation] = strconv.Itoa(desired), strconv.Itoa(maximum)
	}
}

// sizes is a plan in short: what is created, what changes its size, what is deleted.
func sizes(p Plan) string {
	var all []string
	if p.Create != nil {
		all = append(all, fmt.Sprintf("create %d", *p.Create.Spec.Replicas))
	}
	for _, c := range p.Change {
		if *c.To.Spec.Replicas != c.From {
			all = append(all, fmt.Sprintf("%s %d>%d", strings.TrimPrefix(c.To.Name, "d-"), c.From, *c.To.Spec.Replicas))
		}
	}
	for _, rs := range p.Delete {
		all = append(all, "delete "+strings.TrimPrefix(rs.Name, "d-"))
	}
	return strings.Join(all, ", ")
}

func TestSizes(t *testing.T) {
	type sets = []*appsv1.ReplicaSet
	paused := func(d *appsv1.Deployment) *appsv1.Deployment { d.Spec.Paused = true; return d }
	history := func(d *appsv1.Deployment, limit int32) *appsv1.Deployment {
		d.Spec.RevisionHistoryLimit = &limit
		return d
	}
	for _, c := range []struct {
		name    string
		d       *appsv1.Deployment
		sets    sets
		running bool
		want    string
	}{
		{"the first one", deployment(10, "25%", "25%"), nil, false, "create 10"},
		{"nothing is wanted", deployment(0, "25%", "25%"), nil, false, "create 0"},
		{"as it should be", deployment(10, "3", "2"), sets{set(1, "new", 10, 10, 10)}, false, ""},
		{"a new template", deployment(10, "3", "2"), sets{set(2, "old", 10, 10, 10)}, false, "create 3, old 10>8"},
		{"a new template, no surge", deployment(10, "0", "2"), sets{set(2, "old", 10, 10, 10, by(10, 10))}, false, "create 0, old 10>8"},
		{"a new template, none may be missing", deployment(10, "3", "0"), sets{set(2, "old", 10, 10, 10)}, false, "create 3"},
		{"both are 0 by rounding", deployment(2, "0", "1%"), sets{set(2, "old", 2, 2, 2, by(2, 2))}, false, "create 0, old 2>1"},
		{"what is missing makes room", deployment(10, "3", "2"), sets{set(2, "old", 8, 8, 8), set(1, "new", 3, 3, 0)}, false, "new 3>5"},
		{"new ones are available", deployment(10, "3", "2"), sets{set(2, "old", 8, 8, 8), set(1, "new", 5, 5, 5)}, false, "old 8>3"},
		{"new ones never get available, an old one is lost", deployment(10, "3", "2"), sets{set(2, "old", 8, 8, 7), set(1, "new", 5, 5, 0)}, false, ""},
		{"and back to the old one", func() *appsv1.Deployment { d := deployment(10, "3", "2"); d.Spec.Template = template("old"); return d }(),
			sets{set(2, "old", 8, 8, 7), set(1, "new", 5, 5, 0)}, false, "new 5>1"},
		{"who is sick goes first", deployment(10, "3", "2"), sets{set(3, "old", 5, 5, 3), set(2, "mid", 4, 4, 4), set(1, "new", 4, 4, 4)}, false, "old 5>0"},
		{"another template meanwhile", deployment(10, "3", "2"), sets{set(3, "old", 8, 8, 8), set(2, "mid", 5, 5, 0)}, false, "create 0, mid 5>0"},
		{"the last old ones", deployment(10, "3", "2"), sets{set(2, "old", 2, 2, 2), set(1, "new", 10, 10, 8)}, false, "old 2>0"},
		{"the new one is too large", deployment(10, "3", "2"), sets{set(1, "new", 12, 12, 12)}, false, "new 12>10"},

		{"scaled up", deployment(20, "3", "2"), sets{set(1, "new", 10, 10, 10)}, false, "new 10>20"},
		{"scaled down", deployment(5, "3", "2"), sets{set(1, "new", 10, 10, 10)}, false, "new 10>5"},
		{"scaled from nothing", deployment(5, "3", "2"), sets{set(1, "new", 0, 0, 0, by(0, 3))}, false, "new 0>5"},
		{"scaled while pods move", deployment(20, "3", "2"), sets{set(2, "old", 8, 8, 8), set(1, "new", 5, 5, 5)}, false, "old 8>14, new 5>9"},
		{"scaled down while pods move", deployment(5, "3", "2"), sets{set(2, "old", 8, 8, 8), set(1, "new", 5, 5, 5)}, false, "new 5>3, old 8>5"},
		{"scaled to nothing while pods move", deployment(0, "3", "2"), sets{set(2, "old", 8, 8, 8), set(1, "new", 5, 5, 5)}, false, "new 5>0, old 8>0"},
		{"scaled while one has all", deployment(10, "3", "2"), sets{set(2, "old", 3, 3, 3, by(5, 8)), set(1, "new", 10, 10, 10)}, false, "old 3>0"},

		{"paused, a new template", paused(deployment(10, "3", "2")), sets{set(2, "old", 10, 10, 10)}, false, ""},
		{"paused and scaled", paused(deployment(20, "3", "2")), sets{set(2, "old", 10, 10, 10)}, false, "old 10>20"},
		{"paused at once", paused(deployment(10, "3", "2")), nil, false, ""},

		{"recreate: old ones end", deployment(10, "", ""), sets{set(2, "old", 10, 10, 10, by(10, 10))}, true, "old 10>0"},
		{"recreate: old ones are ending", deployment(10, "", ""), sets{set(2, "old", 0, 0, 0, by(10, 10))}, true, ""},
		{"recreate: old ones may still come", deployment(10, "", ""), sets{set(2, "old", 0, 0, 0, by(10, 10), unseen)}, false, ""},
		{"recreate: none is left", deployment(10, "", ""), sets{set(2, "old", 0, 0, 0, by(10, 10))}, false, "create 10"},
		{"recreate: back to an old one", deployment(10, "", ""), sets{set(2, "old", 0, 0, 0), set(3, "new", 0, 0, 0)}, false, "new 0>10"},
		{"recreate, scaled while two have pods", deployment(20, "", ""), sets{set(2, "old", 5, 5, 5), set(1, "new", 5, 5, 5)}, true, "old 5>0"},

		{"history", history(deployment(10, "3", "2"), 1), sets{set(1, "new", 10, 10, 10), set(4, "a", 0, 0, 0), set(3, "b", 0, 0, 0), set(2, "c", 0, 0, 0)}, false,
			"delete a, delete b"},
		{"history while pods move", history(deployment(10, "3", "2"), 0), sets{set(1, "new", 10, 10, 9), set(4, "a", 0, 0, 0)}, false, ""},
		{"history that has pods", history(deployment(10, "3", "2"), 0), sets{set(1, "new", 10, 10, 10), set(4, "a", 0, 1, 0)}, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Decide(State{Deployment: c.d, Sets: c.sets, Running: func(*appsv1.ReplicaSet) bool { return c.running }, Now: now})
			if s := sizes(got); s != c.want {
				t.Errorf("got %q, want %q", s, c.want)
			}
		})
	}
}

// unseen: the set's controller has not seen its size yet.
func unseen(rs *appsv1.ReplicaSet) { rs.Generation = rs.Status.ObservedGeneration + 1 }

// TestBounds: whatever is decided, step by step until nothing changes, there are never more pods than wanted and surge, and never fewer available ones than
// wanted less what may be missing.
func TestBounds(t *testing.T) {
	for wanted := int32(0); wanted <= 7; wanted++ {
		for _, share := range [][2]string{{"0", "1"}, {"1", "0"}, {"25%", "25%"}, {"3", "2"}, {"100%", "0"}, {"0", "100%"}} {
			d := deployment(wanted, share[0], share[1])
			more, less := bounds(d)
			surge, missing := int32(more), int32(less)
			sets := []*appsv1.ReplicaSet{set(2, "old", wanted, wanted, wanted, by(int(wanted), int(wanted+surge)))}
			for step := 0; ; step++ {
				if step > 60 {
					t.Fatalf("%d of %v do not come to an end", wanted, share)
				}
				p := Decide(State{Deployment: d, Sets: sets, Running: func(*appsv1.ReplicaSet) bool { return false }, Now: now})
				d = p.Status
				if p.Create != nil {
					p.Create.CreationTimestamp = metav1.NewTime(now)
					sets = append(sets, p.Create)
				}
				for _, c := range p.Change {
					sets[slices.IndexFunc(sets, func(rs *appsv1.ReplicaSet) bool { return rs.Name == c.To.Name })] = c.To
				}
				total, available, still := int32(0), int32(0), p.Create == nil && len(p.Change) == 0
				for _, rs := range sets {
					// Pods that are too many go at once; of those that are missing one comes a step.
					rs.Status.Replicas = *rs.Spec.Replicas
					rs.Status.AvailableReplicas = min(rs.Status.AvailableReplicas, *rs.Spec.Replicas)
					available += rs.Status.AvailableReplicas
					total += *rs.Spec.Replicas
				}
				if total > wanted+surge || available < wanted-missing {
					t.Fatalf("%d of %v: %d pods, %d of them available", wanted, share, total, available)
				}
				for _, rs := range sets {
					if rs.Status.AvailableReplicas < *rs.Spec.Replicas {
						rs.Status.AvailableReplicas++
						still = false
					}
				}
				if still {
					break
				}
			}
			if old, current := sets[0], sets[1]; *old.Spec.Replicas != 0 || *current.Spec.Replicas != wanted {
				t.Errorf("%d of %v: %d old ones and %d new ones at the end", wanted, share, *old.Spec.Replicas, *current.Spec.Replicas)
			}
			if c := condition(&d.Status, appsv1.DeploymentProgressing); c.Reason != reasonComplete {
				t.Errorf("%d of %v: Progressing has the reason %s at the end", wanted, share, c.Reason)
			}
		}
	}
}

func TestConditions(t *testing.T) {
	with := func(d *appsv1.Deployment, is corev1.ConditionStatus, reason string, ago time.Duration) *appsv1.Deployment {
		at := metav1.NewTime(now.Add(-ago))
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: is, Reason: reason, LastUpdateTime: at, LastTransitionTime: at}}
		d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = 10, 10, 9, 9
		return d
	}
	for _, c := range []struct {
		name      string
		d         *appsv1.Deployment
		available int32
		want      string
	}{
		{"complete", with(deployment(10, "3", "2"), "True", reasonUpdated, time.Minute), 10, "Progressing=True NewReplicaSetAvailable, Available=True MinimumReplicasAvailable"},
		{"goes on", with(deployment(12, "3", "2"), "True", reasonUpdated, time.Hour), 10, "Progressing=True ReplicaSetUpdated, Available=True MinimumReplicasAvailable"},
		{"no progress for too long", with(deployment(12, "3", "0"), "True", reasonUpdated, time.Hour), 9,
			"Progressing=False ProgressDeadlineExceeded, Available=False MinimumReplicasUnavailable"},
		{"no progress yet", with(deployment(12, "3", "0"), "True", reasonUpdated, time.Minute), 9,
			"Progressing=True ReplicaSetUpdated, Available=False MinimumReplicasUnavailable"},
		{"goes on after all", with(deployment(12, "3", "2"), "False", reasonTimedOut, time.Hour), 10, "Progressing=True ReplicaSetUpdated, Available=True MinimumReplicasAvailable"},
		{"paused", func() *appsv1.Deployment {
			d := with(deployment(12, "3", "2"), "True", reasonUpdated, time.Hour)
			d.Spec.Paused = true
			return d
		}(), 9, "Progressing=Unknown DeploymentPaused, Available=False MinimumReplicasUnavailable"},
		{"resumed", with(deployment(12, "3", "2"), "Unknown", reasonPaused, time.Hour), 9, "Progressing=Unknown DeploymentResumed, Available=False MinimumReplicasUnavailable"},
		{"without a deadline", func() *appsv1.Deployment {
			d := with(deployment(12, "3", "2"), "True", reasonUpdated, time.Hour)
			d.Spec.ProgressDeadlineSeconds = nil
			return d
		}(), 9, "Available=False MinimumReplicasUnavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := int(*c.d.Spec.Replicas)
			rs := set(1, "new", *c.d.Spec.Replicas, 10, c.available, by(n, n+3))
			got := Decide(State{Deployment: c.d, Sets: []*appsv1.ReplicaSet{rs}, Running: func(*appsv1.ReplicaSet) bool { return true }, Now: now}).Status
			var all []string
			for _, of := range got.Status.Conditions {
				all = append(all, fmt.Sprintf("%s=%s %s", of.Type, of.Status, of.Reason))
			}
			slices.SortFunc(all, func(a, b string) int { return strings.Compare(b, a) })
			if s := strings.Join(all, ", "); s != c.want {
				t.Errorf("got %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestDeadline(t *testing.T) {
	d := deployment(10, "3", "2")
	rs := set(1, "new", 10, 10, 9)
	state := State{Deployment: d, Sets: []*appsv1.ReplicaSet{rs}, Running: func(*appsv1.ReplicaSet) bool { return true }, Now: now}
	state.Deployment = Decide(state).Status
	state.Now = now.Add(time.Minute)
	p := Decide(state)
	if p.Status != state.Deployment {
		t.Fatalf("the status changes though nothing has: %+v", p.Status.Status)
	}
	if want := 9*time.Minute + time.Second; p.Again != want {
		t.Errorf("looked at again after %v, want %v", p.Again, want)
	}
}

func TestRevisions(t *testing.T) {
	d := deployment(10, "3", "2")
	d.Annotations = map[string]string{"team": "x", revisionAnnotation: "99", corev1.LastAppliedConfigAnnotation: "{}"}
	old, back := set(1, "old", 10, 10, 10), set(2, "new", 0, 0, 0)
	p := Decide(State{Deployment: d, Sets: []*appsv1.ReplicaSet{old, back}, Running: func(*appsv1.ReplicaSet) bool { return true }, Now: now})
	got := p.Change[0].To
	for key, want := range map[string]string{revisionAnnotation: "100", historyAnnotation: "98", "team": "x", corev1.LastAppliedConfigAnnotation: ""} {
		if got.Annotations[key] != want {
			t.Errorf("annotation %s is %q, want %q", key, got.Annotations[key], want)
		}
	}
	if of := p.Status.Annotations[revisionAnnotation]; of != "100" {
		t.Errorf("the deployment's revision is %s", of)
	}
	annotations := map[string]string{revisionAnnotation: "1500", historyAnnotation: strings.TrimSuffix(strings.Repeat("1234,", 400), ",")}
	promote(annotations, 1501)
	if h := annotations[historyAnnotation]; len(h) > maxHistory || !strings.HasSuffix(h, "1234,1500") {
		t.Errorf("the history has %d letters and ends with %q", len(h), h[len(h)-9:])
	}
	annotations = map[string]string{revisionAnnotation: "1", historyAnnotation: strings.Repeat("1,", 100000)} // as large as annotations may be
	if promote(annotations, 2); len(annotations[historyAnnotation]) != maxHistory-1 {
		t.Errorf("of a history that somebody wrote %d letters are kept", len(annotations[historyAnnotation]))
	}
}

// TestLastRevision: a number that somebody wrote and after which there is none is no revision.
func TestLastRevision(t *testing.T) {
	for wrote, want := range map[string]string{"9223372036854775807": "1", "9223372036854775806": "9223372036854775807", "-5": "1", "many": "1"} {
		old := set(1, "old", 10, 10, 10)
		old.Annotations[revisionAnnotation] = wrote
		p := Decide(State{Deployment: deployment(10, "3", "2"), Sets: []*appsv1.ReplicaSet{old}, Running: func(*appsv1.ReplicaSet) bool { return true }, Now: now})
		if got := p.Create.Annotations[revisionAnnotation]; got != want {
			t.Errorf("after %s comes %s, want %s", wrote, got, want)
		}
	}
}

func TestTemplateHash(t *testing.T) {
	a, b := template("new"), template("old")
	once := int32(1)
	names := []string{templateHash(&a, nil), templateHash(&b, nil), templateHash(&a, &once)}
	if names[0] == names[1] || names[0] == names[2] || names[0] != templateHash(&a, nil) {
		t.Errorf("the hashes are %v", names)
	}
}

// TestHugeNumbers: sums of what users write are more than an int32 holds, and pods move all the same.
func TestHugeNumbers(t *testing.T) {
	const huge = math.MaxInt32
	for _, c := range []struct {
		name               string
		surge, unavailable string
		sets               []*appsv1.ReplicaSet
		want               string
	}{
		{"the first set", "25%", "25%", nil, "new 2147483647"},
		{"the largest surge", "2147483647", "0", nil, "new 2147483647"},
		{"a share that cannot be counted", "9223372036854775807%", "0", nil, "new 2147483647"},
		{"a share of more than all", "1000%", "100%", nil, "new 2147483647"},
		{"old pods make room", "1", "1", []*appsv1.ReplicaSet{set(2, "old", huge, huge, huge, by(huge, huge))}, "new 1, old 2147483646"},
		{"scaled up to it", "25%", "25%", []*appsv1.ReplicaSet{set(2, "old", 8, 8, 8), set(1, "new", 2, 2, 2)}, "new 412977624, old 2147483647"},
		{"both sets are as large as can be", "25%", "25%", []*appsv1.ReplicaSet{set(2, "old", huge, 0, 0, by(huge, huge)), set(1, "new", huge, 0, 0, by(huge, huge))},
			"new 2147483647, old 1610612736"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Decide(State{Deployment: deployment(huge, c.surge, c.unavailable), Sets: c.sets, Running: func(*appsv1.ReplicaSet) bool { return true }, Now: now})
			sizes := map[string]int32{}
			for _, rs := range c.sets {
				sizes[rs.Spec.Template.Spec.Containers[0].Image] = *rs.Spec.Replicas
			}
			if p.Create != nil {
				sizes["new"] = *p.Create.Spec.Replicas
			}
			for _, to := range p.Change {
				sizes[to.To.Spec.Template.Spec.Containers[0].Image] = *to.To.Spec.Replicas
			}
			var got []string
			for _, name := range slices.Sorted(maps.Keys(sizes)) {
				got = append(got, fmt.Sprintf("%s %d", name, sizes[name]))
			}
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if p.Status.Status.UnavailableReplicas < 0 {
				t.Errorf("%d are not available", p.Status.Status.UnavailableReplicas)
			}
		})
	}
}
