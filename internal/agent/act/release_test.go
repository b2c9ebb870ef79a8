package act

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/agent/loglinks"
	"monopod.dev/monopod/internal/agent/plan"
)

// host is what pods have on it, and writes down what is done there.
type host struct {
	did  []string
	fail string // what is done in vain
	logs string
}

func (h *host) do(what string) error {
	if what == "remove files" && len(there(h.logs)) > 0 {
		what += " before the logs"
	}
	h.did = append(h.did, what)
	if what == h.fail {
		return errors.New(what + " fails")
	}
	return nil
}

func (h *host) MakePodDir(types.UID) error                   { return h.do("make the directory") }
func (h *host) Release(context.Context, types.UID) error     { return h.do("release volumes") }
func (h *host) Ensure(*v1.Pod) error                         { return h.do("make the cgroup") }
func (h *host) UpdateQoS() error                             { return h.do("share") }
func (h *host) Link(loglinks.Container, string) error        { return h.do("link") }
func (h *host) RemovePod(string, string, string) error       { return h.do("remove links") }
func (h *host) devices(context.Context, string) error        { return h.do("devices") }
func (h *host) removeFiles(context.Context, types.UID) error { return h.do("remove files") }
func (h *host) removeCgroup(types.UID) error                 { return h.do("remove the cgroup") }
func (h *host) removeLink(loglinks.Container) error          { return h.do("remove a link") }

// Of each there is one with a method Remove.
type (
	hostFiles   struct{ *host }
	hostCgroups struct{ *host }
	hostLinks   struct{ *host }
)

func (h hostFiles) Remove(ctx context.Context, uid types.UID) error { return h.removeFiles(ctx, uid) }
func (h hostCgroups) Remove(uid types.UID) error                    { return h.removeCgroup(uid) }
func (h hostLinks) Remove(c loglinks.Container) error               { return h.removeLink(c) }

// there are the pods that have a directory of logs.
func there(logs string) []string {
	dirs, _ := filepath.Glob(filepath.Join(logs, "*"))
	return dirs
}

func TestPlaces(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for name, c := range map[string]struct {
		fail  string
		act   func(ctx context.Context, places *Places, releases *Releases) error
		did   string
		err   string
		event string
		logs  bool
	}{
		"made": {act: func(_ context.Context, p *Places, _ *Releases) error { return p.make(pod) }, did: "make the directory, share, make the cgroup", logs: true},
		"no directory, no logs": {fail: "make the directory", act: func(_ context.Context, p *Places, _ *Releases) error { return p.make(pod) }, did: "make the directory",
			err: "directories of the pod: ", event: "Warning FailedToMakePodDataDirectories error making pod data directories: make the directory fails"},
		"no cgroup": {fail: "make the cgroup", act: func(_ context.Context, p *Places, _ *Releases) error { return p.make(pod) }, did: "make the directory, share, make the cgroup",
			err: "cgroup of the pod: ", event: "Warning FailedCreatePodContainer unable to ensure pod container exists: make the cgroup fails", logs: true},
		"at its end": {act: func(ctx context.Context, _ *Places, r *Releases) error { return r.release(ctx, pod, plan.Action{}) }, did: "forget u, devices, share, release volumes"},
		"at its deletion": {act: func(ctx context.Context, p *Places, r *Releases) error {
			return errors.Join(p.make(pod), r.release(ctx, pod, plan.Action{Final: true}))
		}, did: "make the directory, share, make the cgroup, forget u, devices, share, remove the cgroup, remove links, remove files"},
		"what fails keeps nothing else": {fail: "devices", act: func(ctx context.Context, _ *Places, r *Releases) error {
			return r.release(ctx, pod, plan.Action{Final: true})
		},
			did: "forget u, devices, share, remove the cgroup, remove links, remove files", err: "devices fails"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{fail: c.fail, logs: filepath.Join(t.TempDir(), "logs")}
			events := record.NewFakeRecorder(1)
			places := &Places{Node: &Node{LogsDir: h.logs}, Files: hostFiles{h}, Cgroups: hostCgroups{h}, Links: hostLinks{h}, Tell: &Tell{Events: events}}
			releases := &Releases{Places: places, Devices: h.devices, Held: []func(types.UID){func(uid types.UID) { h.did = append(h.did, "forget "+string(uid)) }}}
			err := c.act(t.Context(), places, releases)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(h.did, strings.Split(c.did, ", ")) {
				t.Errorf("done: %q", h.did)
			}
			told := ""
			select {
			case told = <-events.Events:
			default:
			}
			if told != c.event {
				t.Errorf("told is %q", told)
			}
			if (len(there(h.logs)) > 0) != c.logs {
				t.Errorf("logs: %q", there(h.logs))
			}
		})
	}
}
