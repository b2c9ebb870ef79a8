package book

// Told is what a container that the runtime has says of its devices.
type Told struct {
	PodNamespace, PodName, Container string
	// Record is what Container.Annotation gave it; empty: it says nothing.
	Record string
}

// Lesson is what is learnt from what the containers of a pod say: nothing, or one of these.
type Lesson struct {
	// Next is what is to be written (see Learnt).
	Next *Record
	// Erase: the record of the pod is damaged, and none of its containers has devices: it is to be removed (see Erase).
	Erase bool
	// Doubt is why what a container says cannot be read, which is Of.
	Doubt error
	Of    Told
}

// Learn compares what is on record of a pod with what its containers say. What the record knows is right; what it does not know, because it was lost or is
// damaged, is learnt. It changes nothing.
func (b *Book) Learn(uid string, told []Told) (l Lesson) {
	p := b.pods[uid]
	if p == nil {
		p = &pod{}
	}
	if p.phase == Gone {
		return l // it has ended since its containers were listed
	}
	rec, _ := b.Record(uid)
	found := map[string]Container{}
	silent := false
	for _, t := range told {
		if _, known := rec.Containers[t.Container]; known {
			continue
		}
		if t.Record == "" {
			silent = true // it has no devices, or was made by a version that did not write them down
			continue
		}
		c, err := ParseAnnotation(t.Record)
		if err != nil {
			return Lesson{Doubt: err, Of: t}
		}
		if len(c.Grants) > 0 {
			found[t.Container] = c
			rec.Namespace, rec.Name = t.PodNamespace, t.PodName
		}
	}
	switch {
	case p.damage != nil && silent: // nobody can tell
	case len(found) > 0:
		next := rec.With(found)
		l.Next = &next
	case p.damage != nil:
		l.Erase = true
	}
	return l
}

// Learnt notes that what was learnt of a pod is on disk.
func (b *Book) Learnt(uid string, rec Record) {
	b.Amend(uid, rec)
	b.pods[uid].damage = nil
}
