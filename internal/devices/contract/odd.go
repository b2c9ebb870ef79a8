package contract

import (
	"context"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
)

// tryOdd sends requests that make no sense, and looks after each what has become of the plugin.
func (t *trial) tryOdd(ctx context.Context, name string, refuse bool, requests ...func() (what string, call judge.Call)) {
	if t.lost != "" {
		t.skip(t.name, t.lost, name)
		return
	}
	var all []judge.Odd
	for _, send := range requests {
		o := judge.Odd{}
		ended := t.line.state().Ended != "" // before: that is not the request's doing
		o.What, o.Call = send()
		o.Harm = t.harm(ctx, o.Call, ended)
		all = append(all, o)
		if o.Hung || o.Harm != "" || ctx.Err() != nil {
			break
		}
	}
	t.add(judge.OddRequests(name, t.name, all, refuse))
	if all[len(all)-1].Harm != "" {
		t.revive(ctx, name)
	}
}

// harm says what the plugin is like after a request; empty: as before. ended: its stream of devices had ended before.
func (t *trial) harm(ctx context.Context, request judge.Call, ended bool) string {
	after := t.call(ctx, func(ctx context.Context) error {
		_, err := t.line.client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
		return err
	})
	if (request.Lost || after.Lost) && t.program != nil {
		// Its connections end a moment before it does.
		if how := t.program.settle(ctx); how != "" {
			return "the plugin has ended: " + how
		}
	}
	switch state := t.line.state(); {
	case after.Lost, after.Hung:
		return "afterwards GetDevicePluginOptions " + after.String()
	case state.Ended != "" && !ended:
		return "the plugin has ended its stream of devices: " + state.Ended
	}
	return ""
}
