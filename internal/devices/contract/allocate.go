package contract

import (
	"context"
	"fmt"
	"strings"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

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
func (t *trial) allocate(ctx context.Context, what string, containers ...[]string) judge.Allocation {
	a := judge.Allocation{What: what, Containers: len(containers)}
	req := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests, &v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	a.Call = t.call(ctx, func(ctx context.Context) (err error) {
		a.Response, err = t.line.client.Allocate(ctx, req)
		return err
	})
	if !a.Failed() && len(containers) == 1 {
		a.Unusable = errorWords(plugin.CheckAnswer(a.Response))
	}
	return a
}

// tryAllocations goes through the ways to allocate.
func (t *trial) tryAllocations(ctx context.Context) {
	if why := t.hindrance(); why != "" {
		t.skip(t.name, why, ofAllocations...)
		t.skip(t.name, why, ofAnswers...)
		t.skip(t.name, why, "allocate/unknown", "allocate/odd")
		return
	}
	one := t.allocate(ctx, "one device", t.ids[:1])
	t.add(judge.Allocated("allocate/one", t.name, []judge.Allocation{one}, ""))
	if one.Hung {
		const why = "Allocate does not answer"
		t.skip(t.name, why, ofAllocations[1:]...)
		t.skip(t.name, why, ofAnswers...)
		t.skip(t.name, why, "allocate/unknown", "allocate/odd")
		return
	}
	all := append([]judge.Allocation{one}, t.allocateMore(ctx, one)...)
	t.add(judge.Answers(t.name, all, view{t.cfg.CDIDirs, t.program}.host(all))...)
	t.tryOddAllocations(ctx)
}

// allocateMore makes the allocations after the first one.
func (t *trial) allocateMore(ctx context.Context, one judge.Allocation) (made []judge.Allocation) {
	judged := func(name, note string, all ...judge.Allocation) {
		made = append(made, all...)
		t.add(judge.Allocated(name, t.name, all, note))
	}
	each, note := t.ids, ""
	if len(each) > mostEach {
		each, note = each[:mostEach], fmt.Sprintf(" of the first of %d devices", len(t.ids))
	}
	var single []judge.Allocation
	for _, id := range each {
		a := t.allocate(ctx, fmt.Sprintf("device %.80q", id), []string{id})
		single = append(single, a)
		if a.Hung || ctx.Err() != nil {
			break
		}
	}
	judged("allocate/each", note, single...)
	if len(t.ids) > 1 {
		judged("allocate/several", "", t.allocate(ctx, "2 devices", t.ids[:2]))
		judged("allocate/all", "", t.allocate(ctx, fmt.Sprintf("all %d devices", len(t.ids)), t.ids))
	} else {
		t.skip(t.name, "there is only one healthy device", "allocate/several", "allocate/all")
	}
	if one.Failed() {
		t.skip(t.name, "the first Allocate failed", "allocate/same", "allocate/containers")
		return made
	}
	again := t.allocate(ctx, one.What, t.ids[:1])
	made = append(made, again)
	t.add(judge.Same(t.name, one, again))
	t.add(judge.Containers(t.name, t.allocate(ctx, "a device for each of 2 containers", t.ids[:1], t.ids[len(t.ids)-1:])))
	return made
}

// tryOddAllocations sends what makes no sense.
func (t *trial) tryOddAllocations(ctx context.Context) {
	send := func(what string, containers ...[]string) func() (string, judge.Call) {
		return func() (string, judge.Call) { return what, t.allocate(ctx, what, containers...).Call }
	}
	t.tryOdd(ctx, "allocate/unknown", true, send("an ID that is not in the list", []string{unknownID}))
	t.tryOdd(ctx, "allocate/odd", false,
		send("no container_requests"), send("no devices_ids", []string{}), send("an ID twice", []string{t.ids[0], t.ids[0]}),
		send("an empty ID", []string{""}), send("an ID of 64 KiB", []string{strings.Repeat("x", 64<<10)}),
		send("a known and an unknown ID", []string{t.ids[0], unknownID}))
}
