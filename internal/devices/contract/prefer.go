package contract

import (
	"context"
	"fmt"
	"slices"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

func (t *trial) prefer(ctx context.Context, available, must []string, n int) judge.Preference {
	p := judge.Preference{What: fmt.Sprintf("%d of %d devices", n, len(available))}
	if len(must) > 0 {
		p.What += fmt.Sprintf(", %d of them given", len(must))
	}
	var resp *v1beta1.PreferredAllocationResponse
	p.Call = t.call(ctx, func(ctx context.Context) (err error) {
		resp, err = t.line.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{
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
func (t *trial) tryPreferences(ctx context.Context) {
	why := t.hindrance()
	if !t.options.Preferred {
		why = "not offered: get_preferred_allocation_available is not set"
	}
	if why != "" {
		t.skip(t.name, why, append(slices.Clone(ofPreferences), "prefer/odd")...)
		return
	}
	count := len(t.ids)
	sizes := []int{1, min(2, count), (count + 1) / 2, count}
	slices.Sort(sizes)
	var all []judge.Preference
	hung := func() bool { return all[len(all)-1].Hung || ctx.Err() != nil }
	for _, n := range slices.Compact(sizes) {
		for _, must := range [][]string{nil, t.ids[count-1:]} {
			all = append(all, t.prefer(ctx, t.ids, must, n))
			if hung() {
				break
			}
		}
		if hung() {
			break
		}
	}
	t.add(judge.Preferred(t.name, all)...)
	if hung() {
		t.skip(t.name, "GetPreferredAllocation does not answer", "prefer/odd")
		return
	}
	ask := func(what string, available, must []string, n int) func() (string, judge.Call) {
		return func() (string, judge.Call) { return what, t.prefer(ctx, available, must, n).Call }
	}
	t.tryOdd(ctx, "prefer/odd", false,
		ask("more than are available", t.ids, nil, count+1), ask("none", t.ids, nil, 0), ask("fewer than none", t.ids, nil, -1),
		ask("nothing available", nil, nil, 1), ask("an unknown ID that must be included", t.ids, []string{unknownID}, 1),
		ask("fewer than must be included", t.ids, t.ids, count-1),
		func() (string, judge.Call) {
			return "no container_requests", t.call(ctx, func(ctx context.Context) error {
				_, err := t.line.client.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{})
				return err
			})
		})
}

// tryStarts calls what is called before a container's start, where the plugin wants it.
func (t *trial) tryStarts(ctx context.Context) {
	why := t.hindrance()
	if !t.options.PreStart {
		why = "not asked for: pre_start_required is not set"
	}
	if why != "" {
		t.skip(t.name, why, "start/answers", "start/odd")
		return
	}
	begin := func(ids []string) judge.Call {
		return t.call(ctx, func(ctx context.Context) error {
			_, err := t.line.client.PreStartContainer(ctx, &v1beta1.PreStartContainerRequest{DevicesIds: ids})
			return err
		})
	}
	var all []judge.Starting
	for _, one := range []struct {
		what string
		ids  []string
	}{{"one device", t.ids[:1]}, {"the same device", t.ids[:1]}, {fmt.Sprintf("all %d devices", len(t.ids)), t.ids}} {
		all = append(all, judge.Starting{What: one.what, Call: begin(one.ids)})
		if all[len(all)-1].Hung {
			break
		}
	}
	t.add(judge.StartsAnswered(t.name, all))
	if all[len(all)-1].Hung {
		t.skip(t.name, "PreStartContainer does not answer", "start/odd")
		return
	}
	t.tryOdd(ctx, "start/odd", false,
		func() (string, judge.Call) { return "an ID that is not in the list", begin([]string{unknownID}) },
		func() (string, judge.Call) { return "no IDs", begin(nil) })
}
