package contract

import (
	"context"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod.dev/monopod/internal/devices/contract/judge"
	"monopod.dev/monopod/internal/devices/plugin"
)

// trial tries all that concerns one resource: its list, and the calls about its devices.
type trial struct {
	*notes
	*stage
	*subject
}

// try goes through all that concerns one resource.
func (t *trial) try(ctx context.Context) {
	defer func() {
		if t.line != nil {
			t.line.close()
			t.line = nil
		}
	}()
	if !t.tryList(ctx) {
		why := "the plugin tells no devices"
		t.skip(t.name, why, "list/again")
		for _, names := range [][]string{ofAllocations, {"allocate/unknown", "allocate/odd"}, ofAnswers, ofPreferences, {"prefer/odd", "start/answers", "start/odd"}, ofTheStream} {
			t.skip(t.name, why, names...)
		}
		return
	}
	t.tryAgain(ctx)
	t.tryAllocations(ctx)
	t.tryPreferences(ctx)
	t.tryStarts(ctx)
	if t.lost != "" {
		t.skip(t.name, t.lost, ofTheStream...)
		return
	}
	t.add(judge.ListedLater(t.name, t.first, t.line.laters()))
	t.add(judge.Streamed(t.name, t.line.state()))
}

// tryList asks for the options and the devices. It returns false when there are none to go on with.
func (t *trial) tryList(ctx context.Context) bool {
	l, err := t.open(ctx, t.subject)
	if err != nil {
		t.skip(t.name, "the plugin is not there: "+err.Error(), "register/options")
		t.skip(t.name, "the plugin is not there", ofTheList[:5]...)
		return false
	}
	t.line = l
	asked := judge.Asked{Registered: t.told}
	asked.Call = t.call(ctx, func(ctx context.Context) error {
		o, err := l.client.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
		asked.Options = judge.Options{PreStart: o.GetPreStartRequired(), Preferred: o.GetGetPreferredAllocationAvailable()}
		return err
	})
	t.add(judge.OptionsOf(t.name, asked))
	switch {
	case !asked.Failed():
		t.options = asked.Options
	case t.told != nil:
		t.options = *t.told
	}
	first := t.listFrom(ctx, l)
	devices, list := l.list()
	list.Call = first
	t.first = list
	t.take(devices)
	t.add(judge.Listed(t.name, list)...)
	if first.Failed() {
		t.skip(t.name, "there is no list", ofTheList[1:5]...)
	}
	return !first.Failed()
}

// fillPatience is how long an empty list may take to be filled: some plugins look for their devices while they serve.
const fillPatience = 2 * time.Second

// listFrom calls ListAndWatch and waits for its first list.
func (t *trial) listFrom(ctx context.Context, l *line) judge.Call {
	if err := l.listen(ctx); err != nil {
		return judge.Call{Error: plugin.Words(err)}
	}
	first := t.call(ctx, func(ctx context.Context) error {
		return l.await(ctx, func([]*v1beta1.Device) bool { return true })
	})
	if devices, _ := l.list(); !first.Failed() && len(devices) == 0 {
		filled, cancel := context.WithTimeout(ctx, min(fillPatience, t.cfg.Timeout))
		defer cancel()
		_ = l.await(filled, func(d []*v1beta1.Device) bool { return len(d) > 0 }) // the list that there is counts
	}
	return first
}

// tryAgain closes the connection and asks for the devices on another one, which is the one that is used from then on.
func (t *trial) tryAgain(ctx context.Context) {
	again := t.relist(ctx)
	t.add(judge.ListedAgain("list/again", t.name, again))
	if again.Failed() {
		t.lost = "the plugin does not tell its devices again"
	}
}

// relist lists the devices of a subject on a new connection.
func (t *trial) relist(ctx context.Context) judge.Again {
	again := judge.Again{Before: t.devices}
	if t.line != nil {
		t.line.close()
		t.line = nil
	}
	l, err := t.open(ctx, t.subject)
	if err != nil {
		again.Error = err.Error()
		return again
	}
	t.line = l
	again.Call = t.listFrom(ctx, l)
	if !again.Failed() {
		devices, first := l.list()
		t.take(devices)
		again.After = first.Devices
	}
	return again
}

// relistUntil lists the devices again and again until the plugin has settled: one that sees both signs of a node's start serves and registers
// twice.
func (t *trial) relistUntil(ctx context.Context) judge.Again {
	before := t.devices
	for end := time.Now().Add(t.cfg.Timeout); ; {
		t.quiet(ctx)
		if reg, ok := t.desk.latest(t.name, 0); ok {
			t.socket = t.seen(reg).socket
		}
		again := t.relist(ctx)
		again.Before = before
		if !again.Failed() || again.Hung || ctx.Err() != nil || time.Now().After(end) {
			return again
		}
	}
}

// revive starts a program that has ended although nobody had told it to, so that the rest can be tried.
func (t *trial) revive(ctx context.Context, during string) {
	if t.program == nil {
		t.lost = "the plugin has ended"
		return
	}
	how, ended := t.program.ended()
	if !ended {
		// It serves no more, or not as before: a restart brings it back to where it was.
		t.program.stop(ctx, t.cfg.Timeout)
	} else {
		t.died = true
		t.add(judge.Died(during, how))
	}
	if err := t.startAgain(ctx, []*subject{t.subject}); err != nil {
		t.lost = "the plugin was not to be started again: " + err.Error()
		return
	}
	if again := t.relist(ctx); again.Failed() {
		t.lost = "the plugin tells no devices when it is started again: " + again.Error
	}
}
