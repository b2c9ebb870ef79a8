package plan

import "fmt"

// run brings a pod up and keeps it up.
func (d *decision) run() {
	if d.a.deadlineSet() {
		d.wake(d.a.deadline)
	}
	d.prune()
	if !d.settle() {
		return
	}
	if d.a.sandbox == nil {
		d.createSandbox()
		return
	}
	if d.in.VolumesStale && !d.ongoing(CreateSandbox) {
		d.do(Action{Verb: UpdateVolumes})
	}
	if !d.a.initialized {
		d.runInit()
		return
	}
	for i := range d.a.main {
		d.runContainer(&d.a.main[i])
	}
}

// ongoing says that an action of which there is one a pod is under way.
func (d *decision) ongoing(v Verb) bool {
	_, ok := d.in.Ongoing[Key{Verb: v}]
	return ok
}

// settle stops what runs outside the sandbox in use, and sandboxes that were replaced. It says whether that is done.
func (d *decision) settle() bool {
	settled := true
	for i := range d.in.Observed.Containers {
		c := &d.in.Observed.Containers[i]
		if c.alive() && (d.a.sandbox == nil || c.SandboxID != d.a.sandbox.ID) {
			d.stop(c, d.in.Now.Add(grace(d.in.Pod)), "Pod sandbox changed, it will be killed and re-created.")
			settled = false
		}
	}
	for _, s := range d.in.Observed.Sandboxes {
		if s.Ready && s.ID != d.a.sandbox.ID {
			d.do(Action{Verb: StopSandbox, ID: s.ID})
		}
	}
	return settled
}

// createSandbox makes the sandbox, the devices first: without them nothing of the pod is started.
func (d *decision) createSandbox() {
	if !d.in.Granted {
		d.do(Action{Verb: GrantDevices})
		return
	}
	if d.ongoing(UpdateVolumes) {
		// Both write the volumes.
		return
	}
	a := Action{Verb: CreateSandbox}
	for _, s := range d.in.Observed.Sandboxes {
		a.Attempt = max(a.Attempt, s.Attempt+1)
		a.Replaces = append(a.Replaces, s.ID)
	}
	d.do(a)
}

// runInit runs the init containers, one after the other.
func (d *decision) runInit() {
	for i := range d.a.init {
		f := &d.a.init[i]
		if f.state == succeeded {
			continue
		}
		d.runContainer(f)
		return
	}
}

// runContainer starts a container when it is due, and stops one whose specification has changed.
func (d *decision) runContainer(f *fate) {
	if !d.in.Granted {
		// A restarted agent finds the sandbox there; the grant is on record, unless it ended just then, and is asked for again.
		d.do(Action{Verb: GrantDevices})
		return
	}
	switch f.state {
	case up:
		if c := f.last; c.State == Unknown {
			d.stop(c, d.in.Now, fmt.Sprintf("Container %s is in an unknown state, it will be killed", c.Name))
		} else if h := d.in.Hashes[f.spec.Name]; !f.role.AmongInit() && h != "" && c.Hash != "" && c.Hash != h {
			d.stop(c, d.in.Now.Add(grace(d.in.Pod)),
				fmt.Sprintf("Container %s definition changed, will be restarted", c.Name))
		}
	case due:
		if d.in.Now.Before(f.notBefore) {
			d.wake(f.notBefore)
			return
		}
		if f.last != nil && f.last.State == Created && !f.last.lost {
			// Left by an attempt that did not get to start it: its name is freed, then it is made afresh.
			if _, starting := d.in.Ongoing[Key{StartContainer, f.spec.Name}]; !starting {
				d.do(Action{Verb: RemoveContainer, ID: f.last.ID, Container: f.spec.Name})
			}
			return
		}
		d.do(Action{
			Verb: StartContainer, Container: f.spec.Name, Sandbox: d.a.sandbox, Attempt: uint32(f.attempt), Step: f.step,
		})
		if fail, ok := d.in.Failures[Key{StartContainer, f.spec.Name}]; ok && fail.showsAttempt(d.in.Now) {
			d.wake(fail.At.Add(attemptShown))
		}
	}
}

// prune removes dead containers but the newest dead one of each name, and dead sandboxes that hold none.
func (d *decision) prune() {
	held := map[string]bool{}
	seen := map[string]bool{}
	for _, c := range d.in.Observed.Containers {
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		kept := false
		for _, c := range d.in.Observed.byName(c.Name) {
			if c.State != Exited {
				held[c.SandboxID] = true
				continue
			}
			if kept {
				d.do(Action{Verb: RemoveContainer, ID: c.ID, Container: c.Name})
			}
			held[c.SandboxID] = held[c.SandboxID] || !kept
			kept = true
		}
	}
	// While there is no sandbox in use the newest one's attempt is the fact that the next one counts from.
	if d.a.sandbox == nil {
		return
	}
	for _, s := range d.in.Observed.Sandboxes {
		if !s.Ready && !held[s.ID] {
			d.do(Action{Verb: RemoveSandbox, ID: s.ID})
		}
	}
}
