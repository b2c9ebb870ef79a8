package compile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// said is all of rules with what numbers stand for in their place, a line for each thing.
func said(c *Compiler, r *Rules) string {
	name := func(of *numbers) map[uint32]string {
		names := map[uint32]string{0: "free", 1: "anybody"}
		for n, one := range of.of {
			names[one.id] = fmt.Sprintf("%q", n)
		}
		return names
	}
	classes, profiles := name(c.classes), name(c.profiles)
	delete(profiles, 0)
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for d, v := range r.Verdicts {
		for a, class := range v.Pods {
			add("%d pod %s is of %s", d, a, classes[uint32(class)])
		}
		for a, class := range v.Peers {
			add("%d peer %s is of %s", d, a, classes[uint32(class)])
		}
		for _, b := range v.Blocks {
			add("%d %s to %s are of %s", d, b.From, b.To, classes[uint32(b.Class)])
		}
		for p := range v.Open {
			add("%d open: %s and %s", d, classes[uint32(p.Pod)], classes[uint32(p.Peer)])
		}
		for p, profile := range v.Ported {
			add("%d ported: %s and %s by %s", d, classes[uint32(p.Pod)], classes[uint32(p.Peer)], profiles[uint32(profile)])
		}
	}
	for p := range r.Ports {
		add("%s has %d %d to %d", profiles[uint32(p.Profile)], p.Protocol, p.From, p.To)
	}
	for _, of := range []*numbers{c.classes, c.profiles} {
		add("in use: %q", slices.Sorted(maps.Keys(of.of)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// TestAnUpdateIsAsFromScratch: however pods and policies come, change and go, also of pods that claim each other's addresses, what follows is what a compiler says that knows
// nothing of before, and no number is kept for what is not there.
func TestAnUpdateIsAsFromScratch(t *testing.T) {
	for seed := range uint64(60) {
		c := chance{rand.New(rand.NewPCG(seed, 2))}
		compiler := New()
		pods := map[string]Pod{}
		var policies []*networkingv1.NetworkPolicy
		var namespaces []Namespace
		for step := range 40 {
			if step == 0 || c.IntN(10) == 0 {
				namespaces = []Namespace{{"n1", c.labels()}, {"n2", c.labels()}, {"n3", c.labels()}}
				policies = nil
				for i := range c.IntN(6) {
					policies = append(policies, c.policy(pick(c, "n1", "n2", "n3"), fmt.Sprint("p", i)))
				}
				compiler.Learn(policies, namespaces)
			}
			if step > 0 && c.IntN(4) == 0 { // of a namespace that is gone there may be pods
				i := c.IntN(len(namespaces))
				name := namespaces[i].Name
				if namespaces = slices.Delete(slices.Clone(namespaces), i, i+1); c.IntN(3) > 0 || len(namespaces) == 0 {
					namespaces = append(namespaces, Namespace{name, c.labels()})
					compiler.Relabel(namespaces[len(namespaces)-1:], nil)
				} else {
					compiler.Relabel(nil, []string{name})
				}
			}
			before := maps.Clone(pods)
			var come []Pod
			var gone []string
			for range 1 + c.IntN(3) {
				p := c.pod(2 + c.IntN(6)*3)
				p.Key = fmt.Sprint("u", c.IntN(10))
				if c.IntN(4) == 0 {
					p.Addresses = p.Addresses[:1]
				}
				if c.IntN(3) == 0 {
					delete(pods, p.Key)
					gone = append(gone, p.Key)
					come = slices.DeleteFunc(come, func(o Pod) bool { return o.Key == p.Key })
					continue
				}
				pods[p.Key] = p
				gone = slices.DeleteFunc(gone, func(key string) bool { return key == p.Key })
				come = append(slices.DeleteFunc(come, func(o Pod) bool { return o.Key == p.Key }), p)
			}
			all := slices.Collect(maps.Values(pods))
			var got Rules
			if len(before) == len(compiler.state.pods) && c.IntN(2) == 0 { // it has been told of all before
				got = compiler.Update(come, gone)
			} else {
				got = compiler.Compile(all)
			}
			anew := New()
			anew.Learn(policies, namespaces)
			want := anew.Compile(all)
			if got, want := said(compiler, &got), said(anew, &want); got != want {
				t.Fatalf("seed %d, step %d: %s\n\nfrom scratch:\n%s", seed, step, got, want)
			}
		}
	}
}

// TestKindsAreForgotten: what is remembered of kinds of pods does not grow with those that have been there.
func TestKindsAreForgotten(t *testing.T) {
	c := New()
	for i := range 3 * spare {
		c.Update([]Pod{{Key: "one", Kind: kind("shop", fmt.Sprint("job-", i))}}, nil)
	}
	if n := c.known; n > spare+2 || n != len(c.kinds["shop"]) {
		t.Errorf("of one pod %d kinds are remembered", n)
	}
}
