package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

// subject is one resource that is tried.
type subject struct {
	name, socket string
	watched      bool
	told         *judge.Options // by the registration; nil: nothing was
	options      judge.Options
	devices      []*v1beta1.Device
	first        judge.List  // the list that the plugin told first
	later        judge.Later // those that came on a connection that was there
	ids          []string    // of those that can be granted, in the order of the list
	line         *line
	lost         string // why nothing more can be tried
}

func (s *subject) summary(socket string) Resource {
	return Resource{Name: s.name, Socket: socket, Devices: len(s.devices), Healthy: len(s.ids)}
}

// hindrance says why the calls about devices cannot be tried; empty: they can.
func (s *subject) hindrance() string {
	if s.lost == "" && len(s.ids) == 0 {
		return "no device is healthy"
	}
	return s.lost
}

// take takes a list of devices over.
func (s *subject) take(devices []*v1beta1.Device) {
	s.devices, s.ids = devices, nil
	seen := make(map[string]bool, len(devices))
	for _, d := range devices {
		if id := d.GetID(); id != "" && !seen[id] {
			seen[id] = true
			if d.GetHealth() == v1beta1.Healthy {
				s.ids = append(s.ids, id)
			}
		}
	}
}

var (
	ofTheList     = []string{"list/first", "list/ids", "list/health", "list/topology", "list/size", "list/again"}
	ofAllocations = []string{"allocate/one", "allocate/each", "allocate/several", "allocate/all", "allocate/same", "allocate/containers"}
	ofAnswers     = []string{"answer/responses", "answer/content", "answer/envs", "answer/paths", "answer/permissions", "answer/host-paths", "answer/cdi", "answer/usable"}
	ofPreferences = []string{"prefer/answers", "prefer/fits"}
	ofTheStream   = []string{"list/later", "list/stream"}
)

// try goes through all that concerns one resource.
func (r *run) try(ctx context.Context, s *subject) {
	defer func() {
		if s.line != nil {
			s.line.close()
			s.line = nil
		}
	}()
	if !r.tryList(ctx, s) {
		why := "the plugin tells no devices"
		r.skip(s.name, why, "list/again")
		for _, names := range [][]string{ofAllocations, {"allocate/unknown", "allocate/odd"}, ofAnswers, ofPreferences, {"prefer/odd", "start/answers", "start/odd"}, ofTheStream} {
			r.skip(s.name, why, names...)
		}
		return
	}
	r.tryAgain(ctx, s)
	r.tryAllocations(ctx, s)
	r.tryPreferences(ctx, s)
	r.tryStarts(ctx, s)
	if s.lost != "" {
		r.skip(s.name, s.lost, ofTheStream...)
		return
	}
	r.add(judge.ListedLater(s.name, s.first, s.line.laters()))
	r.add(judge.Streamed(s.name, s.line.state()))
}

// tryList asks for the options and the devices. It returns false when there are none to go on with.
func (r *run) tryList(ctx context.Context, s *subject) bool {
	l, err := r.open(ctx, s)
	if err != nil {
		r.skip(s.name, "the plugin is not there: "+err.Error(), "register/options")
		r.skip(s.name, "the plugin is not there", ofTheList[:5]...)
		return false
	}
	s.line = l
	asked := judge.Asked{Registered: s.told}
	asked.Call = r.call(ctx, func(ctx context.Context) error {
		o, err := l.client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
		asked.Options = judge.Options{PreStart: o.GetPreStartRequired(), Preferred: o.GetGetPreferredAllocationAvailable()}
		return err
	})
	r.add(judge.OptionsOf(s.name, asked))
	switch {
	case !asked.Failed():
		s.options = asked.Options
	case s.told != nil:
		s.options = *s.told
	}
	first := r.listFrom(ctx, l)
	devices, list := l.list()
	list.Call = first
	s.first = list
	s.take(devices)
	r.add(judge.Listed(s.name, list)...)
	if first.Failed() {
		r.skip(s.name, "there is no list", ofTheList[1:5]...)
	}
	return !first.Failed()
}

// fillPatience is how long an empty list may take to be filled: some plugins look for their devices while they serve.
const fillPatience = 2 * time.Second

// listFrom calls ListAndWatch and waits for its first list.
func (r *run) listFrom(ctx context.Context, l *line) judge.Call {
	if err := l.listen(ctx); err != nil {
		return judge.Call{Error: plugin.Words(err)}
	}
	first := r.call(ctx, func(ctx context.Context) error {
		return l.await(ctx, func([]*v1beta1.Device) bool { return true })
	})
	if devices, _ := l.list(); !first.Failed() && len(devices) == 0 {
		filled, cancel := context.WithTimeout(ctx, min(fillPatience, r.cfg.Timeout))
		defer cancel()
		_ = l.await(filled, func(d []*v1beta1.Device) bool { return len(d) > 0 }) // the list that there is counts
	}
	return first
}

// tryAgain closes the connection and asks for the devices on another one, which is the one that is used from then on.
func (r *run) tryAgain(ctx context.Context, s *subject) {
	again := r.relist(ctx, s)
	r.add(judge.ListedAgain("list/again", s.name, again))
	if again.Failed() {
		s.lost = "the plugin does not tell its devices again"
	}
}

// relist lists the devices of a subject on a new connection.
func (r *run) relist(ctx context.Context, s *subject) judge.Again {
	again := judge.Again{Before: s.devices}
	if s.line != nil {
		s.line.close()
		s.line = nil
	}
	l, err := r.open(ctx, s)
	if err != nil {
		again.Error = err.Error()
		return again
	}
	s.line = l
	again.Call = r.listFrom(ctx, l)
	if !again.Failed() {
		devices, first := l.list()
		s.take(devices)
		again.After = first.Devices
	}
	return again
}

// relistUntil lists the devices again and again until the plugin has settled: one that sees both signs of a node's start serves and registers
// twice.
func (r *run) relistUntil(ctx context.Context, s *subject) judge.Again {
	before := s.devices
	for end := time.Now().Add(r.cfg.Timeout); ; {
		r.quiet(ctx)
		if reg, ok := r.desk.latest(s.name, 0); ok {
			s.socket = r.seen(reg).socket
		}
		again := r.relist(ctx, s)
		again.Before = before
		if !again.Failed() || again.Hung || ctx.Err() != nil || time.Now().After(end) {
			return again
		}
	}
}

// quiet waits until nothing registers any more, or not for long.
func (r *run) quiet(ctx context.Context) {
	const pause, most = 250 * time.Millisecond, 10
	for range most {
		n := len(r.desk.list(0))
		if !r.desk.await(ctx, pause, r.program.done(), func(all []registration) bool { return len(all) > n }) {
			return
		}
	}
}

// revive starts a program that has ended although nobody had told it to, so that the rest can be tried.
func (r *run) revive(ctx context.Context, s *subject, during string) {
	if r.program == nil {
		s.lost = "the plugin has ended"
		return
	}
	how, ended := r.program.ended()
	if !ended {
		// It serves no more, or not as before: a restart brings it back to where it was.
		r.program.stop(ctx, r.cfg.Timeout)
	} else {
		r.died = true
		r.add(judge.Died(during, how))
	}
	if err := r.startAgain(ctx, []*subject{s}); err != nil {
		s.lost = "the plugin was not to be started again: " + err.Error()
		return
	}
	if again := r.relist(ctx, s); again.Failed() {
		s.lost = "the plugin tells no devices when it is started again: " + again.Error
	}
}

// startAgain starts the program anew, and waits for the registrations.
func (r *run) startAgain(ctx context.Context, subjects []*subject) error {
	if _, err := r.program.kill(); err != nil {
		return err
	}
	if err := r.desk.removeSockets(); err != nil { // as a kubelet would; some plugins fail where theirs is left
		return err
	}
	after := len(r.desk.list(0))
	p, err := startWith(r.cfg, r.program.place, r.program.words)
	if err != nil {
		return err
	}
	r.program = p
	if missing := r.awaitAgain(ctx, subjects, after, r.cfg.Timeout); len(missing) > 0 {
		return fmt.Errorf("not registered within %s: %s", judge.Time(r.cfg.Timeout), strings.Join(missing, ", "))
	}
	return nil
}

// awaitAgain waits for new registrations of all subjects, after so many, and returns the names of those without.
func (r *run) awaitAgain(ctx context.Context, subjects []*subject, after int, most time.Duration) (missing []string) {
	r.desk.await(ctx, most, r.program.done(), func([]registration) bool {
		missing = nil
		for _, s := range subjects {
			reg, ok := r.desk.latest(s.name, after)
			if !ok {
				missing = append(missing, s.name)
				continue
			}
			s.socket = r.seen(reg).socket
		}
		return len(missing) == 0
	})
	return missing
}

// hostNUMA are the NUMA nodes of this host; none when that is not known.
func hostNUMA() (nodes []int) {
	entries, err := os.ReadDir("/sys/devices/system/node")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if rest, ok := strings.CutPrefix(e.Name(), "node"); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}
