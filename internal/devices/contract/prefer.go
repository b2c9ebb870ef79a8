package contract

import (
	"context"
	"fmt"
	"slices"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

func (r *run) prefer(ctx context.Context, s *subject, available, must []string, n int) judge.Preference {
	p := judge.Preference{What: fmt.Sprintf("%d of %d devices", n, len(available))}
	if len(must) > 0 {
		p.What += fmt.Sprintf(", %d of them given", len(must))
	}
	var resp *v1beta1.PreferredAllocationResponse
	p.Call = r.call(ctx, func(ctx context.Context) (err error) {
		resp, err = s.line.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(n)},
		}})
		return err
	})
	if !p.Failed() {
		p.Wrong = plugin.CheckPreference(resp, available, must, n)
	}
	return p
}

// tryPreferences asks for advice, where it is offered.
func (r *run) tryPreferences(ctx context.Context, s *subject) {
	why := s.hindrance()
	if !s.options.Preferred {
		why = "not offered: get_preferred_allocation_available is not set"
	}
	if why != "" {
		r.skip(s.name, why, append(slices.Clone(ofPreferences), "prefer/odd")...)
		return
	}
	count := len(s.ids)
	sizes := []int{1, min(2, count), (count + 1) / 2, count}
	slices.Sort(sizes)
	var all []judge.Preference
	hung := func() bool { return all[len(all)-1].Hung || ctx.Err() != nil }
	for _, n := range slices.Compact(sizes) {
		for _, must := range [][]string{nil, s.ids[count-1:]} {
			all = append(all, r.prefer(ctx, s, s.ids, must, n))
			if hung() {
				break
			}
		}
		if hung() {
			break
		}
	}
	r.add(judge.Preferred(s.name, all)...)
	if hung() {
		r.skip(s.name, "GetPreferredAllocation does not answer", "prefer/odd")
		return
	}
	ask := func(what string, available, must []string, n int) func() (string, judge.Call) {
		return func() (string, judge.Call) { return what, r.prefer(ctx, s, available, must, n).Call }
	}
	r.tryOdd(ctx, s, "prefer/odd", false,
		ask("more than are available", s.ids, nil, count+1), ask("none", s.ids, nil, 0), ask("fewer than none", s.ids, nil, -1),
		ask("nothing available", nil, nil, 1), ask("an unknown ID that must be included", s.ids, []string{unknownID}, 1),
		ask("fewer than must be included", s.ids, s.ids, count-1),
		func() (string, judge.Call) {
			return "no container_requests", r.call(ctx, func(ctx context.Context) error {
				_, err := s.line.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{})
				return err
			})
		})
}

// tryStarts calls what is called before a container's start, where the plugin wants it.
func (r *run) tryStarts(ctx context.Context, s *subject) {
	why := s.hindrance()
	if !s.options.PreStart {
		why = "not asked for: pre_start_required is not set"
	}
	if why != "" {
		r.skip(s.name, why, "start/answers", "start/odd")
		return
	}
	begin := func(ids []string) judge.Call {
		return r.call(ctx, func(ctx context.Context) error {
			_, err := s.line.client.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: ids})
			return err
		})
	}
	var all []judge.Starting
	for _, one := range []struct {
		what string
		ids  []string
	}{{"one device", s.ids[:1]}, {"the same device", s.ids[:1]}, {fmt.Sprintf("all %d devices", len(s.ids)), s.ids}} {
		all = append(all, judge.Starting{What: one.what, Call: begin(one.ids)})
		if all[len(all)-1].Hung {
			break
		}
	}
	r.add(judge.StartsAnswered(s.name, all))
	if all[len(all)-1].Hung {
		r.skip(s.name, "PreStartContainer does not answer", "start/odd")
		return
	}
	r.tryOdd(ctx, s, "start/odd", false,
		func() (string, judge.Call) { return "an ID that is not in the list", begin([]string{unknownID}) },
		func() (string, judge.Call) { return "no IDs", begin(nil) })
}
