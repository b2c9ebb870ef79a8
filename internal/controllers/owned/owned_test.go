package owned

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

var kind = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}

// pod is a pod of a namespace with a label app, and an owner, unless that is empty.
func pod(name, app string, owner types.UID) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app}}}
	if owner != "" {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "name-of-" + string(owner), UID: owner, Controller: &yes}}
	}
	return p
}

func ending(p *corev1.Pod) *corev1.Pod {
	p.DeletionTimestamp = &metav1.Time{}
	return p
}

func TestClaim(t *testing.T) {
	elsewhere := pod("elsewhere", "a", "")
	elsewhere.Namespace = "m"
	all := []*corev1.Pod{
		pod("mine", "a", "me"), ending(pod("mine-ending", "a", "me")), pod("strayed", "b", "me"), ending(pod("strayed-ending", "b", "me")),
		pod("orphan", "a", ""), ending(pod("orphan-ending", "a", "")), pod("other", "b", ""), pod("somebodys", "a", "you"), elsewhere,
	}
	for _, c := range []struct {
		owner *corev1.Pod
		want  string
	}{
		{pod("me", "", ""), "mine mine-ending; adopt orphan; release strayed"},
		{ending(pod("me", "", "")), "mine mine-ending; adopt ; release "},
	} {
		got := Claim(c.owner, labels.SelectorFromSet(labels.Set{"app": "a"}), all)
		names := func(pods []*corev1.Pod) string {
			var all []string
			for _, p := range pods {
				all = append(all, p.Name)
			}
			return strings.Join(all, " ")
		}
		if s := names(got.Mine) + "; adopt " + names(got.Adopt) + "; release " + names(got.Release); s != c.want {
			t.Errorf("got %q, want %q", s, c.want)
		}
	}
}

type version string

func (v *version) LastStoreSyncResourceVersion() string { return string(*v) }

func TestUnseen(t *testing.T) {
	var u Unseen
	a, b := cache.NewObjectName("n", "a"), cache.NewObjectName("n", "b")
	pods, sets := version("9"), version("100")
	u.Wrote(a, &pods, "11")
	u.Wrote(a, &pods, "10") // answers may come in another order than the writes
	u.Wrote(a, &sets, "100")
	u.Goes(b, "pod")
	expect := func(what string, a1, b1 bool) {
		t.Helper()
		if u.Nothing(a) != a1 || u.Nothing(b) != b1 {
			t.Errorf("%s: nothing is unseen of a: %v, of b: %v; want %v, %v", what, u.Nothing(a), u.Nothing(b), a1, b1)
		}
	}
	expect("at first", false, false)
	pods = "10"
	expect("the first one is seen", false, false)
	pods = "11"
	expect("both are seen", true, false)
	u.Went("other")
	expect("another one went", true, false)
	if owners := u.Went("pod"); !slices.Equal(owners, []cache.ObjectName{b}) {
		t.Errorf("who waited for it are %v", owners)
	}
	expect("all went", true, true)
	u.Wrote(a, &pods, "12")
	u.Forget(a)
	expect("forgotten", true, true)
	pods = "" // a cache that does not say
	u.Wrote(a, &pods, "13")
	expect("it cannot be told", true, true)
}

// TestUnseenEnds: nobody waits for ever.
func TestUnseenEnds(t *testing.T) {
	at := time.Unix(1000, 0)
	u := Unseen{now: func() time.Time { return at }}
	a, b := cache.NewObjectName("n", "a"), cache.NewObjectName("n", "b")
	pods := version("9")
	u.Wrote(a, &pods, "11")
	u.Goes(a, "pod")
	u.Goes(b, "pod")
	u.Goes(b, "other")
	at = at.Add(longEnough)
	if u.Nothing(a) || u.Nothing(b) {
		t.Error("nobody waits any more")
	}
	u.Goes(b, "other")
	at = at.Add(time.Second)
	if !u.Nothing(a) || u.Nothing(b) {
		t.Errorf("after a minute: a waits %v, b %v", !u.Nothing(a), !u.Nothing(b))
	}
	if owners := u.Went("other"); !slices.Equal(owners, []cache.ObjectName{b}) || len(u.goingOf) != 0 {
		t.Errorf("who waited for it are %v; left are %v", owners, u.goingOf)
	}
	u.Goes(a, "pod")
	u.Forget(a)
	if owners := u.Went("pod"); len(owners) != 0 {
		t.Errorf("who is forgotten waits: %v", owners)
	}
}

// TestGoesWithoutOwner: a dependent that goes is one that its former owner waits for, whosever it is by then.
func TestGoesWithoutOwner(t *testing.T) {
	for name, tell := range map[string]func(Dependents, *corev1.Pod){
		"it begins to go": func(d Dependents, p *corev1.Pod) { d.changed(p, ending(p.DeepCopy())) },
		"it is gone":      func(d Dependents, p *corev1.Pod) { d.gone(p) },
		"there is a new one": func(d Dependents, p *corev1.Pod) {
			d.changed(p, func() *corev1.Pod { n := p.DeepCopy(); n.UID = "new"; return n }())
		},
	} {
		for _, now := range []*corev1.Pod{pod("p", "a", ""), pod("p", "a", "you"), pod("p", "a", "me")} {
			me := cache.NewObjectName("n", "name-of-me")
			var woken []string
			d := Dependents{Kind: kind, Unseen: &Unseen{}, Look: func(owner cache.ObjectName) { woken = append(woken, owner.Name) }}
			d.Unseen.Goes(me, "p")
			tell(d, now)
			if !d.Unseen.Nothing(me) || !slices.Contains(woken, me.Name) {
				t.Errorf("%s: the owner that had it deleted waits: %v; woken are %v", name, !d.Unseen.Nothing(me), woken)
			}
		}
	}
}

// TestWatch: whom a change of a dependent wakes.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, now *corev1.Pod
		want     string
	}{
		{"new", nil, pod("p", "a", "me"), "name-of-me"},
		{"changed", pod("p", "a", "me"), pod("p", "b", "me"), "name-of-me"},
		{"changes hands", pod("p", "a", "me"), pod("p", "a", "you"), "name-of-me name-of-you"},
		{"let go", pod("p", "a", "me"), pod("p", "b", ""), "name-of-me orphan"},
		{"a new orphan", nil, pod("p", "a", ""), "orphan"},
		{"an orphan with other labels", pod("p", "a", ""), pod("p", "b", ""), "orphan"},
		{"an orphan otherwise changed", pod("p", "a", ""), pod("p", "a", ""), ""},
		{"an orphan that ends", nil, ending(pod("p", "a", "")), ""},
		{"gone", pod("p", "a", "me"), nil, "name-of-me"},
		{"another one of its name", func() *corev1.Pod { p := pod("p", "a", "me"); p.UID = "other"; return p }(), pod("p", "a", "you"), "name-of-me name-of-you"},
		{"of another kind", nil, func() *corev1.Pod { p := pod("p", "a", "me"); p.OwnerReferences[0].Kind = "Job"; return p }(), ""},
		{"of another group", nil, func() *corev1.Pod { p := pod("p", "a", "me"); p.OwnerReferences[0].APIVersion = "x/v1"; return p }(), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var woken []string
			d := Dependents{Kind: kind, Unseen: &Unseen{}, Look: func(owner cache.ObjectName) { woken = append(woken, owner.Name) },
				Orphan: func(metav1.Object) { woken = append(woken, "orphan") }}
			switch {
			case c.now == nil:
				d.gone(object(cache.DeletedFinalStateUnknown{Obj: c.old}))
			case c.old == nil:
				d.changed(nil, c.now)
			default:
				d.changed(c.old, c.now)
			}
			if got := strings.Join(slices.Compact(woken), " "); got != c.want {
				t.Errorf("woke %q, want %q", got, c.want)
			}
		})
	}
}

func TestSlowStart(t *testing.T) {
	bad := errors.New("bad")
	for _, c := range []struct{ n, failsAt, tried int }{{0, -1, 0}, {1, -1, 1}, {10, -1, 10}, {100, 0, 1}, {100, 2, 3}, {100, 5, 7}} {
		var mu sync.Mutex
		tried := 0
		_, err := (*Pace)(nil).SlowStart(c.n, func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			tried++
			if i == c.failsAt {
				return bad
			}
			return nil
		})
		if tried != c.tried || (c.failsAt >= 0) != (err != nil) {
			t.Errorf("%d of which %d fails: %d were tried, error %v; want %d", c.n, c.failsAt, tried, err, c.tried)
		}
	}
}

// TestTell: what is done about pods is told of as replica sets do, unless an owner has other words.
func TestTell(t *testing.T) {
	events := record.NewFakeRecorder(9)
	p := Pods{Events: events}
	failed := errors.New("full")
	for _, did := range []Deed{Created, Deleted} {
		p.tell(pod("me", "", ""), pod("a", "", ""), did, nil)
		p.tell(pod("me", "", ""), pod("a", "", ""), did, failed)
	}
	for _, want := range []string{
		"Normal SuccessfulCreate Created pod: a", "Warning FailedCreate Error creating: full", "Normal SuccessfulDelete Deleted pod: a", "Warning FailedDelete Error deleting: full",
	} {
		if got := <-events.Events; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	p.Tell = func(_ Owner, of *corev1.Pod, did Deed, err error) {
		if of.Name != "a" || did != Created || !errors.Is(err, failed) {
			t.Errorf("told of %s %s: %v", did, of.Name, err)
		}
	}
	p.tell(pod("me", "", ""), pod("a", "", ""), Created, failed)
	if len(events.Events) > 0 {
		t.Errorf("told twice: %s", <-events.Events)
	}
}
