package binder

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/controllers/binder/errand"
)

// refusedOn is a claim whose provisioner on a node has said why it makes no volume; empty: before a node was chosen.
func refusedOn(node string) ofAClaim {
	return func(c *corev1.PersistentVolumeClaim) {
		if node != "" {
			onNode(node)(c)
		}
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: "monopod.dev/ProvisioningFailed", Status: corev1.ConditionTrue, Message: "no room"}}
	}
}

// TestSupply: what is done about the claims of a pod that is on node a.
func TestSupply(t *testing.T) {
	some := func(claims ...*corev1.PersistentVolumeClaim) []*corev1.PersistentVolumeClaim { return claims }
	free := func(volumes ...*corev1.PersistentVolume) []*corev1.PersistentVolume { return volumes }
	for _, c := range []struct {
		name    string
		pod     *corev1.Pod
		claims  []*corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		want    string
	}{
		{"no claims", having(), nil, nil, "nothing"},
		{"bound", having("c"), some(claimed("c", boundTo("v"))), free(stored("v", heldBy("c"))), "nothing"},
		{"made", having("c"), some(claimed("c")), nil, "c+"},
		{"there", having("c"), some(claimed("c")), free(stored("v", thereOn("a"))), "c=v"},
		{"for this pod alone, which has it", having("c"), some(claimed("c", forOnePod)), nil, "c+"},
		{"one is bound", having("c", "d"), some(claimed("c", boundTo("v")), claimed("d")), free(stored("v", heldBy("c"))), "d+"},
		{"one is bound elsewhere", having("c", "d"), some(claimed("c", boundTo("v")), claimed("d")), free(stored("v", heldBy("c"), thereOn("b"))),
			"lacks: node(s) didn't match PersistentVolume's node affinity"},
		{"there elsewhere", having("c"), some(claimed("c", inClass("static"))), free(stored("v", ofClass("static"), thereOn("b"))), "lacks: node(s) didn't find available persistent volumes to bind"},
		{"made elsewhere", having("c"), some(claimed("c", onNode("b"))), nil, "c+"}, // there is no such node
		{"refused", having("c"), some(claimed("c", refusedOn("a"))), nil, `lacks: persistentvolumeclaim "c" gets no volume: no room`},
		{"not there", having("c"), nil, nil, "lacks"},
		{"being deleted", having("c"), some(claimed("c", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} })), nil, "lacks"},
		{"of a class that binds at once", having("c", "d"), some(claimed("c", inClass("now")), claimed("d")), nil, "lacks"},
	} {
		in := cluster{
			places: []place{{node: nodeWith(func(n *corev1.Node) { n.Name, n.Labels = "a", map[string]string{corev1.LabelHostname: "a"} })}},
			storage: &stock{claims: c.claims, volumes: c.volumes, inUse: []string{"c"}, classes: []*storagev1.StorageClass{
				classed("late", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer), classed("now", "example.com/p", storagev1.VolumeBindingImmediate),
				classed("static", "kubernetes.io/no-provisioner", storagev1.VolumeBindingWaitForFirstConsumer),
			}},
		}
		s, got := in.supply(c.pod), "nothing"
		for _, g := range s.plan.Gives {
			got = g.Claim.Name + "=" + g.Volume.Name
		}
		for _, m := range s.plan.Makes {
			got = m.Name + "+"
		}
		if s.lacks {
			got = "lacks"
		}
		if s.why != "" {
			got += ": " + s.why
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestStranded: a pod is told why once, and again when it is something else.
func TestStranded(t *testing.T) {
	var all stranded
	pod := podWith(func(p *corev1.Pod) { p.UID, p.Spec.NodeName = "1", "a" })
	var told []string
	for i, why := range []string{"", "one", "one", "two", "", "two"} {
		if all.put(pod, why) {
			told = append(told, fmt.Sprint(i, why))
		}
	}
	if want := []string{"1one", "3two", "5two"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	if len(all.on("a")) != 1 || len(all.on("")) != 1 || len(all.on("b")) != 0 {
		t.Error("it is not found on its node, or on another one")
	}
	all.drop("1")
	if len(all.on("")) != 0 {
		t.Error("it is still there")
	}
}

// claims has the stage know claims, of the class "late".
func (s *stage) claims(all ...*corev1.PersistentVolumeClaim) {
	s.Helper()
	err := s.nodes.Storage().V1().StorageClasses().Informer().GetIndexer().Add(classed("late", "example.com/p", storagev1.VolumeBindingWaitForFirstConsumer))
	for _, c := range all {
		err = errors.Join(err, s.nodes.Core().V1().PersistentVolumeClaims().Informer().GetIndexer().Add(c))
	}
	if err != nil {
		s.Fatal(err)
	}
}

// having is a pod of the stage with a claim.
func (s *stage) having(claim string) *corev1.Pod {
	p := s.pod("")
	p.Namespace = "default"
	p.Spec.Volumes = having(claim).Spec.Volumes
	return p
}

// TestAPodThatGoesBetween a decision about it and the start of its errand loses its place at once, and whoever waits for its claim is looked at again.
func TestAPodThatGoesBetween(t *testing.T) {
	for name, goes := range map[string]func(*stage, *corev1.Pod){
		"gone": func(s *stage, p *corev1.Pod) {
			if err := s.pods.GetIndexer().Delete(p); err != nil {
				s.Fatal(err)
			}
			s.podGone(p)
		},
		"being deleted": func(s *stage, p *corev1.Pod) {
			p = p.DeepCopy()
			p.DeletionTimestamp = &metav1.Time{}
			s.show(p)
		},
		"made again": func(s *stage, p *corev1.Pod) {
			p = p.DeepCopy()
			p.UID = "another"
			s.show(p)
			s.line.leave(p.UID)
		},
		"elsewhere": func(s *stage, p *corev1.Pod) {
			p = p.DeepCopy()
			p.Spec.NodeName = "m"
			s.show(p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, 0, "")
			s.claims(claimed("c"))
			p, q := s.having("c"), s.having("c")
			s.show(p)
			s.show(q)
			s.drain()
			goes(s, p)
			s.drain()
			s.decided = 0
			s.start(p, "n", errand.Plan{Makes: []*corev1.PersistentVolumeClaim{claimed("c")}})
			if err := s.errand(t.Context(), p.UID); err != nil {
				t.Fatal(err)
			}
			if s.errands.Get(p.UID) != nil || name != "elsewhere" && s.book.has(p.UID) {
				t.Error("it has its place, or its errand goes on")
			}
			if s.drain(); s.decided == 0 {
				t.Error("who shares its claim is not looked at again")
			}
		})
	}
}
