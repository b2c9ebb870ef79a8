package binder

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod.dev/monopod/internal/controllers/binder/errand"
)

// text says what comes next.
func text(s errand.Step) (text string) {
	for _, g := range s.Gives {
		text += fmt.Sprintf("give %s to %s; ", g.Volume.Name, g.Claim.Name)
	}
	for _, c := range s.Makes {
		text += fmt.Sprintf("mark %s; ", c.Name)
	}
	switch {
	case s.Failed != "" && s.Quiet:
		text += "anew: " + s.Failed
	case s.Failed != "":
		text += "failed: " + s.Failed
	case s.Done:
		text += "done"
	case text == "":
		text = "wait"
	}
	return text
}

func version(v string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.ResourceVersion = v }
}
func versionV(v string) ofAVolume { return func(p *corev1.PersistentVolume) { p.ResourceVersion = v } }

func half(volume string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = volume }
}

// TestErrand: what comes next for a pod on node a, after what was written and by what is seen.
func TestErrand(t *testing.T) {
	begin := time.Now()
	gives := errand.Plan{Gives: []errand.Give{{Claim: claimed("c"), Volume: stored("v")}}}
	makes := errand.Plan{Makes: []*corev1.PersistentVolumeClaim{claimed("c")}}
	both := errand.Plan{Gives: gives.Gives, Makes: []*corev1.PersistentVolumeClaim{claimed("d")}}
	vAt, cAt := map[errand.Object]string{errand.OfVolume("v"): "10"}, map[errand.Object]string{{Namespace: "default", Name: "c"}: "10"}
	some := func(claims ...*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim { return claims }
	vols := func(volumes ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return volumes }
	another := func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }
	for _, c := range []struct {
		name    string
		plan    errand.Plan
		written map[errand.Object]string
		claims  []*corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		after   time.Duration
		err     error
		noNode  bool
		want    string
	}{
		{name: "give it", plan: gives, claims: some(claimed("c")), volumes: vols(stored("v")), want: "give v to c; "},
		{name: "kept for it by name", plan: gives, claims: some(claimed("c")), volumes: vols(stored("v", heldBy("c"), func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" })), want: "give v to c; "},
		{name: "given, not seen yet", plan: gives, written: vAt, claims: some(claimed("c")), volumes: vols(stored("v", versionV("9"))), want: "wait"},
		{name: "given", plan: gives, written: vAt, claims: some(claimed("c")), volumes: vols(stored("v", versionV("10"), heldBy("c"))), want: "wait"},
		{name: "given by one before", plan: gives, claims: some(claimed("c")), volumes: vols(stored("v", heldBy("c"))), want: "wait"},
		{name: "half bound", plan: gives, written: vAt, claims: some(claimed("c", half("v"))), volumes: vols(stored("v", versionV("11"), heldBy("c"))), want: "wait"},
		{name: "bound", plan: gives, written: vAt, claims: some(claimed("c", boundTo("v"))), volumes: vols(stored("v", versionV("11"), heldBy("c"))), want: "done"},
		{name: "taken back", plan: gives, written: vAt, claims: some(claimed("c")), volumes: vols(stored("v", versionV("11"))), want: `failed: ClaimRef got reset for pv "v"`},
		{name: "another's in the meantime", plan: gives, claims: some(claimed("c")), volumes: vols(stored("v", heldBy("d"))), want: `anew: volume "v" is not for claim "c" any more`},
		{name: "the claim has another one", plan: gives, claims: some(claimed("c", half("w"))), volumes: vols(stored("v")), want: `anew: volume "v" is not for claim "c" any more`},
		{name: "no volume", plan: gives, claims: some(claimed("c")), want: `failed: failed to check binding: persistentvolume "v" not found`},
		{name: "no claim", plan: gives, volumes: vols(stored("v")), want: `failed: failed to check binding: persistentvolumeclaim "c" not found`},
		{name: "another claim of the name", plan: gives, claims: some(claimed("c", another)), volumes: vols(stored("v")), want: `failed: failed to check binding: persistentvolumeclaim "c" not found`},
		{name: "the volume is elsewhere now", plan: gives, claims: some(claimed("c")), volumes: vols(stored("v", thereOn("b"))),
			want: `failed: pv "v" node affinity doesn't match node "a": no matching NodeSelectorTerms`},

		{name: "mark it", plan: makes, claims: some(claimed("c")), want: "mark c; "},
		{name: "mark it in the place of one that is gone", plan: errand.Plan{Makes: some(claimed("c", onNode("z")))}, claims: some(claimed("c", onNode("z"))), want: "mark c; "},
		{name: "marked, not seen yet", plan: makes, written: cAt, claims: some(claimed("c", version("9"))), want: "wait"},
		{name: "marked", plan: makes, written: cAt, claims: some(claimed("c", version("10"), onNode("a"))), want: "wait"},
		{name: "marked by one before", plan: makes, claims: some(claimed("c", onNode("a"))), want: "wait"},
		{name: "taken off", plan: makes, written: cAt, claims: some(claimed("c", version("11"))), want: `failed: provisioning failed for PVC "c"`},
		{name: "another one's mark", plan: makes, claims: some(claimed("c", onNode("b"))), want: `anew: the volume of claim "c" is made for another node`},
		{name: "made, not seen yet", plan: makes, written: cAt, claims: some(claimed("c", version("11"), onNode("a"), boundTo("v"))), want: "wait"},
		{name: "made, half bound", plan: makes, written: cAt, claims: some(claimed("c", version("11"), onNode("a"), half("v"))), volumes: vols(stored("v", heldBy("c"))), want: "wait"},
		{name: "made", plan: makes, written: cAt, claims: some(claimed("c", version("11"), onNode("a"), boundTo("v"))), volumes: vols(stored("v", heldBy("c"), thereOn("a"))), want: "done"},
		{name: "made elsewhere", plan: makes, written: cAt, claims: some(claimed("c", version("11"), onNode("a"), boundTo("v"))), volumes: vols(stored("v", heldBy("c"), thereOn("b"))),
			want: `failed: pv "v" node affinity doesn't match node "a": no matching NodeSelectorTerms`},
		{name: "bound before it was marked", plan: makes, claims: some(claimed("c", boundTo("v"))), volumes: vols(stored("v", heldBy("c"))), want: "done"},
		{name: "gone", plan: makes, want: `failed: failed to check provisioning pvc: persistentvolumeclaim "c" not found`},
		{name: "made anew", plan: makes, written: cAt, claims: some(claimed("c", another)), want: `failed: failed to check provisioning pvc: persistentvolumeclaim "c" not found`},

		{name: "refused", plan: makes, written: cAt, claims: some(claimed("c", version("11"), refusedOn("a"))), want: `anew: persistentvolumeclaim "c" gets no volume: no room`},
		{name: "refused by one before", plan: makes, claims: some(claimed("c", refusedOn("a"))), want: `anew: persistentvolumeclaim "c" gets no volume: no room`},
		{name: "refused before the mark", plan: makes, claims: some(claimed("c", refusedOn(""))), want: "mark c; "},
		{name: "refused, and made", plan: makes, claims: some(claimed("c", refusedOn("a"), boundTo("v"))), volumes: vols(stored("v", heldBy("c"))), want: "done"},
		{name: "its class is gone", plan: makes, claims: some(claimed("c", inClass("x"))), want: `anew: the class "x" of claim "c" is gone`},
		{name: "its class is gone, and it is made", plan: makes, claims: some(claimed("c", inClass("x"), boundTo("v"))), volumes: vols(stored("v", heldBy("c"))), want: "done"},

		{name: "both", plan: both, claims: some(claimed("c"), claimed("d")), volumes: vols(stored("v")), want: "give v to c; mark d; "},
		{name: "one of both", plan: both, written: vAt, claims: some(claimed("c", boundTo("v")), claimed("d", onNode("a"))), volumes: vols(stored("v", versionV("11"), heldBy("c"))), want: "wait"},
		{name: "the node is gone", plan: makes, claims: some(claimed("c")), noNode: true, want: `failed: failed to get node "a": node "a" not found`},
		{name: "just in time", plan: makes, claims: some(claimed("c", onNode("a"))), after: errand.Patience - 1, want: "wait"},
		{name: "too late", plan: makes, claims: some(claimed("c", onNode("a"))), after: errand.Patience, want: "failed: context deadline exceeded"},
		{name: "in vain", plan: makes, claims: some(claimed("c")), after: errand.Patience, err: errors.New("forbidden"), want: "failed: forbidden"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := errand.New(having("c"), "a", c.plan, begin)
			for o, v := range c.written {
				e.Wrote(o, v)
			}
			_ = e.Trouble(c.err)
			node := nodeWith(func(n *corev1.Node) { n.Name, n.Labels = "a", map[string]string{corev1.LabelHostname: "a"} })
			if c.noNode {
				node = nil
			}
			if got := text(e.Next(&stock{claims: c.claims, volumes: c.volumes, classes: []*storagev1.StorageClass{
				classed("late", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer)}}, node, begin.Add(c.after))); got != c.want {
				t.Errorf("%s\nwant %s", got, c.want)
			}
		})
	}
}
