package book

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
)

// TestNobodyIsForgotten takes steps by chance. After each of them it must hold that no device is two pods', and that a pod which was told to wait would still be told so,
// unless all were told since that it may be otherwise: else it would wait for ever.
func TestNobodyIsForgotten(t *testing.T) {
	for seed := range uint64(100) {
		c := newCrowd(seed)
		for range 60 {
			c.step()
			if why := c.wrong(); why != "" {
				t.Fatalf("seed %d: %s, after\n%s", seed, why, strings.Join(c.steps, "\n"))
			}
		}
	}
}

// crowd are pods that ask for devices, over a book.
type crowd struct {
	rand  *rand.Rand
	book  *Book
	world *World
	pods  map[string]*one
	steps []string
}

// one is a pod of the crowd.
type one struct {
	req    Request
	advice Advice
	waits  bool // it was told to wait, and has heard nothing since
}

func newCrowd(seed uint64) *crowd {
	c := &crowd{rand: rand.New(rand.NewPCG(seed, 1)), book: New("one", new(topology.Aligner), nil, nil), pods: map[string]*one{}}
	c.book.Compare()
	snap := &inventory.Snapshot{Resources: []string{gadget, widget}}
	for _, r := range snap.Resources {
		for i := range 2 + c.rand.IntN(2) {
			snap.Devices = append(snap.Devices, inventory.Device{Resource: r, Name: fmt.Sprint(i), Origin: "/cdi"})
		}
	}
	c.world = NewWorld(Part{Source: "cdi", Snapshot: snap, Advises: seed%3 == 0})
	return c
}

func (c *crowd) log(format string, args ...any) {
	c.steps = append(c.steps, fmt.Sprintf(format, args...))
}

// hear has all those that wait hear of news.
func (c *crowd) hear(news News) {
	if news == All {
		for _, p := range c.pods {
			p.waits = false
		}
	}
}

const number = "example.com/number" // which the node merely counts

// ask has a pod ask for the first time, or again.
func (c *crowd) ask(uid string) {
	p := c.pods[uid]
	if p == nil {
		p = &one{req: Request{UID: uid, Namespace: "ns", Name: uid, Created: time.Unix(int64(uid[0]), 0), Counted: map[string]int64{number: 3}}}
		for i := range 1 + c.rand.IntN(2) {
			n := Need{Container: fmt.Sprint(i), Role: alloc.Main, Want: map[string]int{}}
			for _, r := range []string{gadget, widget, number} {
				if count := c.rand.IntN(3); count > 0 {
					n.Want[r] = count
				}
			}
			if len(n.Want) == 0 {
				n.Want[widget] = 1
			}
			p.req.Needs = append(p.req.Needs, n)
		}
		c.pods[uid] = p
	}
	p.advice = Advice{Preferred: map[Place][]string{}, Unfit: map[Key]string{}}
	c.decide(uid)
}

// decide decides about what a pod lacks.
func (c *crowd) decide(uid string) {
	p := c.pods[uid]
	if len(c.lacks(uid).Needs) == 0 {
		return
	}
	d := c.book.Decide(c.world, c.lacks(uid), p.advice)
	c.hear(c.book.Enter(c.lacks(uid), d))
	p.waits = d.Wait != nil
	switch {
	case d.Wait != nil:
		c.log("%s asks for %v and waits: %v", uid, p.req.Needs, d.Wait.Err)
	case d.Question != nil:
		c.log("%s asks for %v, and is asked for advice", uid, p.req.Needs)
		names := slices.Clone(d.Question.Available)
		c.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		p.advice.Preferred[d.Question.Place] = names[:d.Question.N]
		c.decide(uid)
	default:
		c.log("%s asks for %v and gets %v", uid, p.req.Needs, d.Grants)
	}
}

// lacks is the request for what a pod has no record of.
func (c *crowd) lacks(uid string) Request {
	req := c.pods[uid].req
	rec, _ := c.book.Record(uid)
	req.Needs = slices.DeleteFunc(slices.Clone(req.Needs), func(n Need) bool { _, has := rec.Containers[n.Container]; return has })
	return req
}

// step takes a step that makes sense.
func (c *crowd) step() {
	uid := string(rune('a' + c.rand.IntN(5)))
	p, phase := c.pods[uid], c.book.PhaseOf(uid)
	switch n := c.rand.IntN(10); {
	case p == nil || phase == Nothing && n < 8:
		c.ask(uid)
	case phase == Chosen && n < 3: // a check of one of its devices fails
		for _, container := range c.book.Whole(uid).Containers {
			for resource, g := range container.Grants {
				if len(g.Devices) > 0 {
					c.log("a check of %s %s for %s fails", resource, g.Devices[0].Name, uid)
					p.advice.Unfit[Key{resource, g.Devices[0].Name}] = "it is broken"
					c.decide(uid)
					return
				}
			}
		}
	case phase == Chosen && n < 8:
		c.log("%s is promised", uid)
		c.must(c.book.Promise(uid, c.book.Whole(uid)))
	case (phase == Chosen || phase == Promised) && n < 9:
		if phase == Promised && n < 7 {
			c.log("%s is written", uid)
			news, err := c.book.Wrote(uid)
			c.must(err)
			c.hear(news)
			return
		}
		c.log("%s is retracted", uid)
		c.hear(c.book.Retract(uid))
	case phase == Written && n < 3:
		rec, _ := c.book.Record(uid)
		if len(rec.Containers) < 2 {
			return
		}
		rec.Containers = maps.Clone(rec.Containers)
		delete(rec.Containers, "1")
		c.log("%s has container 1 no more", uid)
		c.hear(c.book.Amend(uid, rec))
	case phase == Written && n < 5:
		c.ask(uid)
	default:
		c.log("%s is released", uid)
		erase, news := c.book.Release(uid)
		if erase {
			c.book.Erase(uid)
			news = All
		}
		c.hear(news)
		delete(c.pods, uid)
	}
}

func (c *crowd) must(err error) {
	if err != nil {
		panic(errors.Join(err, errors.New(strings.Join(c.steps, "\n"))))
	}
}

// wrong says what must not be; empty: nothing.
func (c *crowd) wrong() string {
	holder := map[Key]string{}
	for uid, p := range c.book.pods {
		for rec := range p.has {
			for _, container := range rec.Containers {
				for resource, g := range container.Grants {
					for _, d := range g.Devices {
						key := Key{resource, d.Name}
						if o := holder[key]; o != "" && o != uid {
							return fmt.Sprintf("%s and %s have %s %s", o, uid, resource, d.Name)
						}
						holder[key] = uid
					}
				}
			}
		}
	}
	for uid, p := range c.pods {
		if !p.waits {
			continue
		}
		if d := c.book.Decide(c.world, c.lacks(uid), p.advice); d.Wait == nil {
			return fmt.Sprintf("%s waits, and would get %v", uid, d.Grants)
		}
	}
	return ""
}
