package contract

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/cdispec"
	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

const (
	// mostEach bounds how many devices are allocated one at a time.
	mostEach = 64
	// unknownID is what no plugin calls a device.
	unknownID = "monopod-no-such-device"
)

// allocate sends one request: for each container the devices.
func (r *run) allocate(ctx context.Context, s *subject, what string, containers ...[]string) judge.Allocation {
	a := judge.Allocation{What: what, Containers: len(containers)}
	req := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests, &v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	a.Call = r.call(ctx, func(ctx context.Context) (err error) {
		a.Response, err = s.line.client.Allocate(ctx, req)
		return err
	})
	if !a.Failed() && len(containers) == 1 {
		a.Unusable = errorWords(plugin.CheckAnswer(a.Response))
	}
	return a
}

// tryAllocations goes through the ways to allocate.
func (r *run) tryAllocations(ctx context.Context, s *subject) {
	if why := s.hindrance(); why != "" {
		r.skip(s.name, why, ofAllocations...)
		r.skip(s.name, why, ofAnswers...)
		r.skip(s.name, why, "allocate/unknown", "allocate/odd")
		return
	}
	one := r.allocate(ctx, s, "one device", s.ids[:1])
	r.add(judge.Allocated("allocate/one", s.name, []judge.Allocation{one}, ""))
	if one.Hung {
		const why = "Allocate does not answer"
		r.skip(s.name, why, ofAllocations[1:]...)
		r.skip(s.name, why, ofAnswers...)
		r.skip(s.name, why, "allocate/unknown", "allocate/odd")
		return
	}
	all := append([]judge.Allocation{one}, r.allocateMore(ctx, s, one)...)
	r.add(judge.Answers(s.name, all, r.host(all))...)
	r.tryOddAllocations(ctx, s)
}

// allocateMore makes the allocations after the first one.
func (r *run) allocateMore(ctx context.Context, s *subject, one judge.Allocation) (made []judge.Allocation) {
	judged := func(name, note string, all ...judge.Allocation) {
		made = append(made, all...)
		r.add(judge.Allocated(name, s.name, all, note))
	}
	each, note := s.ids, ""
	if len(each) > mostEach {
		each, note = each[:mostEach], fmt.Sprintf(" of the first of %d devices", len(s.ids))
	}
	var single []judge.Allocation
	for _, id := range each {
		a := r.allocate(ctx, s, fmt.Sprintf("device %.80q", id), []string{id})
		single = append(single, a)
		if a.Hung || ctx.Err() != nil {
			break
		}
	}
	judged("allocate/each", note, single...)
	if len(s.ids) > 1 {
		judged("allocate/several", "", r.allocate(ctx, s, "2 devices", s.ids[:2]))
		judged("allocate/all", "", r.allocate(ctx, s, fmt.Sprintf("all %d devices", len(s.ids)), s.ids))
	} else {
		r.skip(s.name, "there is only one healthy device", "allocate/several", "allocate/all")
	}
	if one.Failed() {
		r.skip(s.name, "the first Allocate failed", "allocate/same", "allocate/containers")
		return made
	}
	again := r.allocate(ctx, s, one.What, s.ids[:1])
	made = append(made, again)
	r.add(judge.Same(s.name, one, again))
	r.add(judge.Containers(s.name, r.allocate(ctx, s, "a device for each of 2 containers", s.ids[:1], s.ids[len(s.ids)-1:])))
	return made
}

// tryOddAllocations sends what makes no sense.
func (r *run) tryOddAllocations(ctx context.Context, s *subject) {
	send := func(what string, containers ...[]string) func() (string, judge.Call) {
		return func() (string, judge.Call) { return what, r.allocate(ctx, s, what, containers...).Call }
	}
	r.tryOdd(ctx, s, "allocate/unknown", true, send("an ID that is not in the list", []string{unknownID}))
	r.tryOdd(ctx, s, "allocate/odd", false,
		send("no container_requests"), send("no devices_ids", []string{}), send("an ID twice", []string{s.ids[0], s.ids[0]}),
		send("an empty ID", []string{""}), send("an ID of 64 KiB", []string{strings.Repeat("x", 64<<10)}),
		send("a known and an unknown ID", []string{s.ids[0], unknownID}))
}

// tryOdd sends requests that make no sense, and looks after each what has become of the plugin.
func (r *run) tryOdd(ctx context.Context, s *subject, name string, refuse bool, requests ...func() (what string, call judge.Call)) {
	if s.lost != "" {
		r.skip(s.name, s.lost, name)
		return
	}
	var all []judge.Odd
	for _, send := range requests {
		o := judge.Odd{}
		ended := s.line.state().Ended != "" // before: that is not the request's doing
		o.What, o.Call = send()
		o.Harm = r.harm(ctx, s, o.Call, ended)
		all = append(all, o)
		if o.Hung || o.Harm != "" || ctx.Err() != nil {
			break
		}
	}
	r.add(judge.OddRequests(name, s.name, all, refuse))
	if all[len(all)-1].Harm != "" {
		r.revive(ctx, s, name)
	}
}

// harm says what the plugin is like after a request; empty: as before. ended: its stream of devices had ended before.
func (r *run) harm(ctx context.Context, s *subject, request judge.Call, ended bool) string {
	after := r.call(ctx, func(ctx context.Context) error {
		_, err := s.line.client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
		return err
	})
	if (request.Lost || after.Lost) && r.program != nil {
		// Its connections end a moment before it does.
		if how := r.program.settle(ctx); how != "" {
			return "the plugin has ended: " + how
		}
	}
	switch state := s.line.state(); {
	case after.Lost, after.Hung:
		return "afterwards GetDevicePluginOptions " + after.String()
	case state.Ended != "" && !ended:
		return "the plugin has ended its stream of devices: " + state.Ended
	}
	return ""
}

// host looks at what the answers name.
func (r *run) host(all []judge.Allocation) judge.Host {
	h := judge.Host{Paths: map[string]string{}, CDI: map[string]string{}}
	var reader cdispec.Reader
	dirs := slices.Clone(r.cfg.CDIDirs)
	for i, dir := range dirs {
		if r.program != nil && filepath.Clean(dir) == cdiFolder { // the plugin's is the test's own
			dirs[i] = r.program.place.cdi
		}
	}
	set := reader.Load(dirs)
	for _, a := range all {
		for _, c := range a.Response.GetContainerResponses() {
			for _, m := range c.GetMounts() {
				h.Paths[m.GetHostPath()] = r.pathKind(m.GetHostPath())
			}
			for _, d := range c.GetDevices() {
				h.Paths[d.GetHostPath()] = r.pathKind(d.GetHostPath())
			}
			for _, d := range c.GetCdiDevices() {
				if _, known := h.CDI[d.GetName()]; !known {
					h.CDI[d.GetName()] = r.checkCDI(set, d.GetName())
				}
			}
		}
	}
	return h
}

// pathKind says what is at a path, as the plugin sees it.
func (r *run) pathKind(path string) string {
	places := []string{path}
	if r.program != nil {
		places = []string{r.program.outside(path), path}
	}
	for _, p := range places {
		st, err := os.Stat(p)
		switch {
		case err != nil:
		case st.IsDir():
			return "a folder"
		case st.Mode()&os.ModeDevice != 0:
			return "a device node"
		default:
			return "a file"
		}
	}
	return ""
}

// checkCDI says why a name cannot be injected, without the name where others may have the same fault.
func (r *run) checkCDI(set *cdispec.Set, name string) string {
	if _, _, err := cdispec.ParseName(name); err != nil {
		return strings.TrimPrefix(errorWords(err), fmt.Sprintf("%q: ", name))
	}
	device, ok := set.Devices[name]
	if !ok {
		why := "no CDI spec defines it in " + strings.Join(r.cfg.CDIDirs, ", ")
		if len(set.Faults) > 0 {
			why += fmt.Sprintf(" (a file there cannot be used: %s)", set.Faults[0])
		}
		return why
	}
	err := cdispec.ThisHost().Check(device, false)
	if drift := (*cdispec.DriftError)(nil); errors.As(err, &drift) {
		return drift.Spec + " does not fit this host: " + drift.Why()
	}
	return errorWords(err)
}
