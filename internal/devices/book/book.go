package book

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/topology"
	"monopod.dev/monopod/internal/kit/ordered"
)

// Phase is how far a pod has come to its devices.
type Phase string

const (
	// Nothing: nothing was chosen for it, and nothing is on record.
	Nothing Phase = ""
	// Chosen: devices are nobody else's, until it is known whether the pod gets them. It has what is on record beside them.
	Chosen Phase = "chosen"
	// Promised: it is known what the pod gets, and it may have been told. All that is missing is the disk.
	Promised Phase = "promised"
	// Written: what it has is on record, and nothing more is chosen.
	Written Phase = "written"
	// Gone: it was released before the book was compared with what runs, so what its containers say of their devices is over.
	Gone Phase = "gone"
)

// String names the phase.
func (p Phase) String() string { return cmp.Or(string(p), "nothing") }

// PhaseError says that a step was to be made from a phase in which it makes no sense.
type PhaseError struct {
	UID  string
	Is   Phase
	Step string
}

// Error names the pod and the step.
func (e *PhaseError) Error() string {
	return fmt.Sprintf("the devices of pod %s are in phase %s, from which they cannot be %s", e.UID, e.Is, e.Step)
}

// News is who is to be told of a change; of two the greater one is.
type News int

const (
	// None: nobody.
	None News = iota
	// Watchers: those who look on. Nobody can wait for it.
	Watchers
	// All: also those who wait: it may be decided otherwise about them.
	All
)

// Key names a device.
type Key struct{ Resource, Name string }

// KeyOf is the key of a device.
func KeyOf(d inventory.Device) Key { return Key{d.Resource, d.Name} }

// Book is who has which devices and who waits for which. It is not safe for concurrent use.
type Book struct {
	boot    string
	aligner *topology.Aligner

	pods map[string]*pod // by UID
	line line
	// compared: with what runs. Until then nothing is decided.
	compared bool
	// damage is why no record at all can be read; nil: those can that are not damaged themselves.
	damage error
	// hardware are the nodes of devices that a source's answers have told and that somebody had by another source.
	hardware map[Key][]string
}

// pod is what is known of one pod. There is none in the phase Nothing, unless its record is damaged.
type pod struct {
	phase Phase
	// record is what is on disk; nil: nothing is.
	record *Record
	// next is, while it is Chosen, what its containers get beside that, and once it is Promised, all that it has.
	next Record
	// claims are the hardware behind answers that are not in a record yet.
	claims []claim
	// awaited: somebody was turned away who might have had what is not on record yet.
	awaited bool
	// damage is why it is not known for sure what its containers have; nil: it is.
	damage error
}

// claim is hardware that a source's answer gives a pod.
type claim struct {
	resource, source string
	nodes            []string
}

// New is the book of what is on disk: records, and what is wrong with those that cannot be read, by pod UID; under an empty UID, with all of them.
// boot names the boot of the machine.
func New(boot string, aligner *topology.Aligner, records map[string]Record, damaged map[string]error) *Book {
	b := &Book{boot: boot, aligner: aligner, pods: map[string]*pod{}, hardware: map[Key][]string{}}
	for uid, rec := range records {
		b.pods[uid] = &pod{phase: Written, record: &rec}
	}
	for uid, err := range damaged {
		b.Damage(uid, err)
	}
	return b
}

// of is the pod's entry, a new one if there is none. Whoever has changed it calls tidy.
func (b *Book) of(uid string) *pod {
	p := b.pods[uid]
	if p == nil {
		p = &pod{}
		b.pods[uid] = p
	}
	return p
}

// tidy removes an entry that says nothing.
func (b *Book) tidy(uid string) {
	if p := b.pods[uid]; p != nil && p.phase == Nothing && p.damage == nil && len(p.claims) == 0 {
		delete(b.pods, uid)
	}
}

// has yields what the pod has, and what it is about to have: where more was promised than is on record, the promise alone, which has all of it.
func (p *pod) has(yield func(Record) bool) {
	if p.record != nil && p.phase != Promised && !yield(*p.record) {
		return
	}
	if p.phase == Chosen || p.phase == Promised {
		yield(p.next)
	}
}

// passes says that the pod has something that it may not keep: it is not on record yet.
func (p *pod) passes() bool { return p.phase == Chosen || p.phase == Promised || len(p.claims) > 0 }

// settled is the phase of a pod for which nothing is under way.
func (p *pod) settled() Phase {
	if p.record == nil {
		return Nothing
	}
	return Written
}

// PhaseOf is the pod's phase.
func (b *Book) PhaseOf(uid string) Phase {
	if p := b.pods[uid]; p != nil {
		return p.phase
	}
	return Nothing
}

// Record is what is on disk for the pod; false: nothing is.
func (b *Book) Record(uid string) (Record, bool) {
	if p := b.pods[uid]; p != nil && p.record != nil {
		return *p.record, true
	}
	return Record{}, false
}

// Records are all that are on disk, in no order.
func (b *Book) Records() iter.Seq2[string, Record] {
	return func(yield func(string, Record) bool) {
		for uid, p := range b.pods {
			if p.record != nil && !yield(uid, *p.record) {
				return
			}
		}
	}
}

// Whole is what the pod would have with what is chosen for it.
func (b *Book) Whole(uid string) Record {
	rec, _ := b.Record(uid)
	if p := b.pods[uid]; p != nil && p.phase == Chosen {
		rec.Namespace, rec.Name = p.next.Namespace, p.next.Name
		return rec.With(p.next.Containers)
	}
	return rec
}

// Promise notes that the pod gets what was chosen for it, as it is in the record that is to be written.
func (b *Book) Promise(uid string, rec Record) error {
	p := b.pods[uid]
	if p == nil || p.phase != Chosen {
		return &PhaseError{uid, b.PhaseOf(uid), "promised"}
	}
	p.phase, p.next, p.claims = Promised, rec, nil
	return nil
}

// Promised is the record that is to be written; false: there is none.
func (b *Book) Promised(uid string) (Record, bool) {
	if p := b.pods[uid]; p != nil && p.phase == Promised {
		return p.next, true
	}
	return Record{}, false
}

// Wrote notes that what was promised is on disk. The pod leaves the line.
func (b *Book) Wrote(uid string) (News, error) {
	p := b.pods[uid]
	if p == nil || p.phase != Promised {
		return None, &PhaseError{uid, b.PhaseOf(uid), "written"}
	}
	rec := p.next
	*p = pod{phase: Written, record: &rec, damage: p.damage}
	if b.line.leave(uid) {
		return All, nil // for those behind it
	}
	return Watchers, nil
}

// Amend notes that another record of the pod is on disk: with other answers, or without a container.
func (b *Book) Amend(uid string, rec Record) News {
	p := b.of(uid)
	news := None
	if p.record != nil && givesUp(p.record.Containers, rec.Containers) {
		news = All
	}
	p.record = &rec
	if p.phase == Nothing {
		p.phase = Written
	}
	return news
}

// givesUp says that containers had something that they have no more.
func givesUp(had, have map[string]Container) bool {
	for name, c := range had {
		for resource, g := range c.Grants {
			now := have[name].Grants[resource]
			for _, d := range g.Devices {
				if !slices.ContainsFunc(now.Devices, func(n Device) bool { return n.Name == d.Name }) {
					return true
				}
			}
			if now.Counted < g.Counted {
				return true
			}
		}
	}
	return false
}

// Retract takes back what is not on record: what was chosen or promised, and which hardware answers have given.
func (b *Book) Retract(uid string) News {
	p := b.pods[uid]
	if p == nil {
		return None
	}
	news := None
	if p.awaited {
		news = All
	}
	if p.phase == Chosen || p.phase == Promised {
		p.phase = p.settled()
	}
	p.next, p.claims, p.awaited = Record{}, nil, false
	b.tidy(uid)
	return news
}

// Release takes back what is not on record, and the pod's place in the line. erase: something is on disk, and is to be removed from there (see Erase).
func (b *Book) Release(uid string) (erase bool, news News) {
	news = b.Retract(uid)
	if b.line.leave(uid) {
		news = All
	}
	if !b.compared {
		b.of(uid).phase = Gone
	}
	p := b.pods[uid]
	return p != nil && (p.record != nil || p.damage != nil), news
}

// Erase notes that nothing of the pod is on disk any more.
func (b *Book) Erase(uid string) {
	p := b.pods[uid]
	if p == nil {
		return
	}
	p.record, p.damage = nil, nil
	if p.phase == Written {
		p.phase = Nothing
	}
	b.tidy(uid)
}

// Damage notes why it is not known for sure what a pod has: as long as it lives, nothing is decided. Of an empty UID: what any pod has.
func (b *Book) Damage(uid string, err error) {
	if uid == "" {
		b.damage = err
		return
	}
	b.of(uid).damage = err
}

// Damages are all that Damage has noted and that is so still, by UID.
func (b *Book) Damages() iter.Seq2[string, error] {
	all := map[string]error{}
	if b.damage != nil {
		all[""] = b.damage
	}
	for uid, p := range b.pods {
		if p.damage != nil {
			all[uid] = p.damage
		}
	}
	return ordered.Map(all)
}

// Known are the pods of which something is on disk, or that stand in the line, by UID.
func (b *Book) Known() []string {
	var known []string
	for uid, p := range b.pods {
		if p.record != nil || p.damage != nil {
			known = append(known, uid)
		}
	}
	for _, w := range b.line.waiting {
		known = append(known, w.uid)
	}
	slices.Sort(known)
	return slices.Compact(known)
}

// Waiting are the pods in the line, by UID, the first one first.
func (b *Book) Waiting() (uids []string) {
	for _, w := range b.line.waiting {
		uids = append(uids, w.uid)
	}
	return uids
}

// Compare notes that the book was compared with what runs: from now on it is decided.
func (b *Book) Compare() {
	b.compared = true
	for uid, p := range b.pods {
		if p.phase == Gone {
			p.phase = p.settled()
			b.tidy(uid)
		}
	}
}
