package plan

import (
	"fmt"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
)

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
	d.updateVolumes()
	if !d.renew() {
		return
	}
	for i := range d.a.ephemeral {
		d.runContainer(&d.a.ephemeral[i])
	}
	if !d.a.initialized {
		d.runInit()
		return
	}
	for i := range d.a.init {
		if f := &d.a.init[i]; f.role == pods.Sidecar {
			d.runContainer(f)
		}
	}
	for i := range d.a.main {
		f := &d.a.main[i]
		d.runContainer(f)
		// Those after one with a postStart hook are started when it is done, as by a kubelet: some count on that.
		if l := f.spec.Lifecycle; l != nil && l.PostStart != nil && (f.state == due && f.attempt == 0 || f.state == up && d.in.postStartDue(f)) {
			return
		}
	}
}

// renew stops what is of before all containers were started again. It says whether that is done.
func (d *decision) renew() bool {
	done := true
	for _, list := range [][]fate{d.a.main, d.a.init} {
		for i := len(list) - 1; i >= 0; i-- {
			if f := &list[i]; f.state == up && f.old {
				d.stop(f.last, d.in.Now.Add(OwnGrace(d.in.Pod)), "All containers of the pod are restarted", done)
				done = false
			}
		}
	}
	return done
}

// ongoing says that an action is under way.
func (d *decision) ongoing(k Key) bool {
	_, ok := d.in.Ongoing[k]
	return ok
}

// mountVolumes has the volumes made that are not there, side by side. It says whether all are.
func (d *decision) mountVolumes() bool {
	done := true
	for i := range d.in.Pod.Spec.Volumes {
		name := d.in.Pod.Spec.Volumes[i].Name
		if d.in.Facts.ofVolume(Mounted, name) {
			continue
		}
		done = false
		if !d.ongoing(Key{Verb: UpdateVolume, Volume: name}) { // both write it
			d.do(Action{Verb: MountVolume, Volume: name})
		}
	}
	return done
}

// updateVolumes has volumes follow what they show, once the pod has its sandbox: until then they are made of what is new.
func (d *decision) updateVolumes() {
	if d.ongoing(Key{Verb: CreateSandbox}) {
		return
	}
	for i := range d.in.Pod.Spec.Volumes {
		if name := d.in.Pod.Spec.Volumes[i].Name; d.in.Stale[name] && !d.ongoing(Key{Verb: MountVolume, Volume: name}) {
			d.do(Action{Verb: UpdateVolume, Volume: name})
		}
	}
}

// settle stops what runs outside the sandbox in use, and sandboxes that were replaced. It says whether that is done.
func (d *decision) settle() bool {
	settled := true
	for i := range d.in.Observed.Containers {
		c := &d.in.Observed.Containers[i]
		if c.alive() && (d.a.sandbox == nil || c.SandboxID != d.a.sandbox.ID) {
			d.stop(c, d.in.Now.Add(OwnGrace(d.in.Pod)), "Pod sandbox changed, it will be killed and re-created.", true)
			settled = false
		}
	}
	for _, s := range d.in.Observed.Sandboxes {
		if s.Ready && s.ID != d.a.sandbox.ID {
			d.do(Action{Verb: StopSandbox, SandboxID: s.ID})
		}
	}
	return settled
}

// createSandbox makes the sandbox, the devices and the volumes first: without them nothing of the pod is started.
func (d *decision) createSandbox() {
	if !d.in.Facts.Has(Granted) {
		d.do(Action{Verb: GrantDevices})
		return
	}
	if !d.mountVolumes() {
		return
	}
	a := Action{Verb: CreateSandbox}
	for _, s := range d.in.Observed.Sandboxes {
		a.Attempt = max(a.Attempt, s.Attempt+1)
		a.Replaces = append(a.Replaces, s.ID)
	}
	d.do(a)
}

// runInit runs the init containers, one after the other; the sidecars among them are kept up from their turn on.
func (d *decision) runInit() {
	for i := range d.a.init {
		f := &d.a.init[i]
		if f.role == pods.Sidecar || f.state != succeeded {
			d.runContainer(f)
		}
		if !d.in.hasDoneItsWork(f) {
			return
		}
	}
}

// runContainer starts a container when it is due, and looks after one that is up.
func (d *decision) runContainer(f *fate) {
	if !d.in.Facts.Has(Granted) {
		// A restarted agent finds the sandbox there; the grant is on record, unless it ended just then, and is asked for again.
		d.do(Action{Verb: GrantDevices})
		return
	}
	switch f.state {
	case up:
		d.lookAfter(f)
	case due:
		if d.in.Now.Before(f.notBefore) {
			d.wake(f.notBefore)
			return
		}
		if f.last != nil && f.last.State == Created && !f.last.lost {
			// Left by an attempt that did not get to start it: its name is freed, then it is made afresh.
			if _, starting := d.in.Ongoing[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; !starting {
				d.do(Action{Verb: RemoveContainer, ContainerID: f.last.ID, ContainerName: f.spec.Name})
			}
			return
		}
		d.do(Action{
			Verb: StartContainer, ContainerName: f.spec.Name, Sandbox: d.a.sandbox, Attempt: uint32(f.attempt), Step: f.step, Target: d.target(f),
		})
		if fail, ok := d.in.Failures[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; ok && fail.showsAttempt(d.in.Now) {
			d.wake(fail.At.Add(attemptShown))
		}
	}
}

// target is the ID of the container that an ephemeral container is to look at.
func (d *decision) target(f *fate) ids.ContainerID {
	if f.role != pods.Ephemeral {
		return ""
	}
	name := pods.TargetOf(&d.in.Pod.Spec, f.spec.Name)
	for _, c := range d.in.Observed.byName(name) {
		if c.State == Running {
			return c.ID
		}
	}
	return ""
}

// lookAfter stops a container that cannot stay, and runs its postStart hook.
func (d *decision) lookAfter(f *fate) {
	c, by := f.last, d.in.Now.Add(OwnGrace(d.in.Pod))
	probed := d.in.Probed[c.ID]
	hook, hookFailed := d.in.Failures[Key{Verb: PostStart, ContainerID: c.ID}]
	_, stopping := d.in.Facts[Fact{What: Stopping, ContainerID: c.ID}]
	switch {
	case c.State == Unknown:
		d.stop(c, d.in.Now, fmt.Sprintf("Container %s is in an unknown state, it will be killed", c.Name), true)
	case f.role != pods.Ephemeral && d.in.changed(f):
		d.stop(c, by, fmt.Sprintf("Container %s definition changed, will be restarted", c.Name), true)
	case hookFailed:
		d.stop(c, by, hook.Reason, true)
	case probed.Failed:
		if probed.Grace != nil {
			by = d.in.Now.Add(*probed.Grace)
		}
		d.stop(c, by, probed.Why, true)
	case stopping:
		// Why it is being stopped is past, as a probe that has failed and then succeeded: it goes on with it.
		d.stop(c, by, "", true)
	case c.State == Running && d.in.postStartDue(f):
		d.do(Action{Verb: PostStart, ContainerID: c.ID, ContainerName: c.Name, Sandbox: d.a.sandbox})
	}
}

// prune removes dead containers but the newest dead one of each name, and dead sandboxes that hold none.
func (d *decision) prune() {
	held := map[ids.SandboxID]bool{}
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
				d.do(Action{Verb: RemoveContainer, ContainerID: c.ID, ContainerName: c.Name})
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
			d.do(Action{Verb: RemoveSandbox, SandboxID: s.ID})
		}
	}
}
