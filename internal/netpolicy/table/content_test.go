package table

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"testing"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// TestWhatIsTouchedIsAllThatDiffers: whichever pods come, change and go, the changes that are made of what rules touch lead to the content that the rules have.
func TestWhatIsTouchedIsAllThatDiffers(t *testing.T) {
	for seed := range uint64(40) {
		chance := rand.New(rand.NewPCG(seed, 3))
		crowd, policies, namespaces := crowd(40, 8)
		var kinds []*compile.Kind
		for i := range crowd {
			kinds = append(kinds, crowd[i].Kind)
		}
		kinds = append(kinds, kindOf("ns0", "nobody"), kindOf("ns1", "a0")) // that no policy is about, or only as a peer
		c := compile.New()
		c.Learn(policies, namespaces)
		r := c.Compile(crowd[:20])
		have := contentOf(&r, nil)
		for step := range 40 {
			var come []compile.Pod
			var gone []string
			for range 1 + chance.IntN(3) {
				p := crowd[chance.IntN(len(crowd))]
				if chance.IntN(3) == 0 {
					gone = append(gone, p.Key)
					continue
				}
				p.Kind = kinds[chance.IntN(len(kinds))]
				p.Local = chance.IntN(4) > 0
				if chance.IntN(3) == 0 { // somebody else's
					p.Addresses = []netip.Addr{crowd[chance.IntN(len(crowd))].Addresses[0]}
				}
				come = append(come, p)
			}
			version := r.Version
			if r = c.Update(come, gone); r.Before != version || r.Version == version {
				t.Fatalf("seed %d, step %d: rules after those of another version", seed, step)
			}
			have.make(touched(&r, have))
			want := contentOf(&r, nil)
			for _, s := range setSpecs() {
				if !maps.Equal(have[s.name], want[s.name]) {
					t.Fatalf("seed %d, step %d: the set %s has\n%v\nnot\n%v", seed, step, s.name, have[s.name], want[s.name])
				}
			}
		}
		if c.Learn(policies[1:], namespaces); c.Compile(crowd).Before != nil {
			t.Fatal("after other policies only what pods touch is told")
		}
	}
}

// BenchmarkAnotherPod is what the sets change by when one of so many pods goes and comes back.
func BenchmarkAnotherPod(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pods, policies, namespaces := crowd(n, n/5)
			c := compile.New()
			c.Learn(policies, namespaces)
			r := c.Compile(pods)
			have := contentOf(&r, nil)
			b.ReportAllocs()
			for b.Loop() {
				r := c.Update(nil, []string{pods[0].Key})
				have.make(touched(&r, have))
				r = c.Update(pods[:1], nil)
				have.make(touched(&r, have))
			}
		})
	}
}
