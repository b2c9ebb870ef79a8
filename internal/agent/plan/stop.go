package plan

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// minimalGrace is what is left to a container whose preStop hook, or whose turn, came at the end of its time.
const minimalGrace = ShortestGrace

// halt cancels what brings things into being and stops what runs, all within one time: the hooks at once, then the containers, the sidecars after all
// others and one after the other, the last first (KEP-753). It says whether all has come to rest.
func (d *decision) halt(by time.Time, why string) (rest bool) {
	rest = true
	for k := range d.in.Ongoing {
		if k.begins() {
			d.cancel(k)
			rest = false
		}
	}
	sidecars := map[string]bool{}
	for i := range d.a.init {
		sidecars[d.a.init[i].spec.Name] = d.a.init[i].role == pods.Sidecar
	}
	for i := range d.in.Observed.Containers {
		if c := &d.in.Observed.Containers[i]; c.alive() && !sidecars[c.Name] {
			d.stop(c, by, why, true)
			rest = false
		}
	}
	for i := len(d.a.init) - 1; i >= 0; i-- {
		f := &d.a.init[i]
		if f.role != pods.Sidecar {
			continue
		}
		turn := rest
		for _, c := range d.in.Observed.byName(f.spec.Name) {
			if c.alive() {
				d.stop(c, by, why, turn)
				rest = false
			}
		}
	}
	return rest
}

// stop ends a container: its preStop hook runs, then it is stopped when it is its turn, all of it within the time. The time of a stop that has begun is only
// ever shortened.
func (d *decision) stop(c *Container, by time.Time, why string, turn bool) {
	begun, told := d.in.Facts[Fact{What: Stopping, ContainerID: c.ID}]
	if told && begun.Before(by) {
		by = begun
	}
	over := !d.in.Now.Before(by)
	_, spec := pods.ContainerNamed(&d.in.Pod.Spec, c.Name)
	hooked := spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && c.State == Running
	if hooked && !over && !d.in.Facts.ofContainer(PreStopped, c.ID) {
		d.do(Action{Verb: PreStop, ContainerID: c.ID, ContainerName: c.Name, Sandbox: d.in.Observed.sandbox(c.SandboxID), StopBy: by, Why: why, Told: told})
		d.wake(by)
		return
	}
	d.cancel(Key{Verb: PreStop, ContainerID: c.ID}) // its time is over
	if !turn && !over {
		d.wake(by)
		return
	}
	if least := d.in.Now.Add(minimalGrace); (hooked || !turn) && by.Before(least) {
		by = least
	}
	d.do(Action{Verb: StopContainer, ContainerID: c.ID, ContainerName: c.Name, StopBy: by, Why: why, Told: told})
}

// OwnGrace is how long a pod's containers have by its specification.
func OwnGrace(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		if *s < 0 { // older API servers let that in; it is taken for 1
			return time.Second
		}
		return pods.Seconds(*s)
	}
	return 30 * time.Second
}
