package contract

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/devices/answer"
	"monopod.dev/monopod/internal/devices/inventory"
	"monopod.dev/monopod/internal/devices/source"
	"monopod.dev/monopod/test/harness"
)

// DeviceSource is a source of devices, and how a test changes the world that it looks at.
type DeviceSource struct {
	// Source does not run yet, and knows no device of Resource.
	Source source.Source
	// Resource is the one of which the test has it have devices.
	Resource string
	// Set has there be these devices of Resource and no others, healthy ones.
	Set func(t *testing.T, names ...string)
	// Break has one of the devices be one that cannot be granted, and Mend ends that.
	Break, Mend func(t *testing.T, name string)
}

// RunDeviceSource runs the suite of what the device manager relies on in a source of devices: what the comments of package source say. Each test has a source, and a
// world, of its own.
func RunDeviceSource(t *testing.T, fresh func(t *testing.T) DeviceSource) {
	for _, c := range []struct {
		rule string
		test func(*sourceTest)
	}{
		{"it has a name, and a snapshot from the beginning", (*sourceTest).begins},
		{"devices are in order, and each is of a resource that is named", (*sourceTest).ordered},
		{"changed comes after the snapshot, and never twice at a time", (*sourceTest).changes},
		{"a snapshot is never changed", (*sourceTest).snapshots},
		{"run ends with its context, and tells nothing afterwards", (*sourceTest).ends},
		{"a device that is there and healthy can be used, and no other", (*sourceTest).checks},
		{"an answer may be asked for again", (*sourceTest).prepares},
		{"what is given and returned is the caller's", (*sourceTest).owned},
		{"a call that is given up is not refused", (*sourceTest).givenUp},
		{"advice fits, or is none", (*sourceTest).advises},
		{"of a resource that it does not know, a start is not required or cannot be asked about", (*sourceTest).starts},
		{"the nodes behind an answer are told in order, each once", (*sourceTest).identifies},
		{"its methods may be called at the same time", (*sourceTest).concurrent},
	} {
		t.Run(c.rule, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute*harness.SlowFactor())
			defer cancel()
			s := &sourceTest{T: t, DeviceSource: fresh(t), ctx: ctx, ticked: make(chan struct{}, 1)}
			defer s.stop()
			c.test(s)
		})
	}
}

// sourceTest is one test of the suite.
type sourceTest struct {
	*testing.T
	DeviceSource
	ctx     context.Context
	ticked  chan struct{} // has a value when something has changed
	telling atomic.Int32  // how many calls of changed are under way
	told    atomic.Int32  // how many there were
	end     func()
}

var someContainer = source.Container{PodUID: "uid", PodNamespace: "ns", PodName: "pod", Name: "main"}

// run runs the source, until stop.
func (s *sourceTest) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- s.Source.Run(ctx, func() {
			if s.telling.Add(1) > 1 {
				s.Error("changed is called twice at a time")
			}
			defer s.telling.Add(-1)
			s.told.Add(1)
			select {
			case s.ticked <- struct{}{}:
			default:
			}
		})
	}()
	s.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.Errorf("Run returns %v", err)
		}
	})
}

func (s *sourceTest) stop() {
	if s.end != nil {
		s.end()
	}
}

// await waits until something is so; it looks once now, and then whenever the source tells of a change.
func (s *sourceTest) await(what string, is func() bool) {
	s.Helper()
	for !is() {
		select {
		case <-s.ticked:
		case <-s.ctx.Done():
			s.Fatalf("%s: never, or it was not told; the snapshot: %+v", what, *s.Source.Snapshot())
		}
	}
}

// have has the source run with these devices.
func (s *sourceTest) have(names ...string) {
	s.Helper()
	if s.end == nil {
		s.run()
	}
	s.Set(s.T, names...)
	s.await(fmt.Sprintf("devices %q", names), func() bool { return slices.Equal(s.healthy(), names) })
}

// healthy are the names of the healthy devices.
func (s *sourceTest) healthy() (names []string) {
	for _, d := range s.Source.Snapshot().Of(s.Resource) {
		if d.Unhealthy == "" {
			names = append(names, d.Name)
		}
	}
	return names
}

func (s *sourceTest) prepare(names ...string) answer.Answer {
	s.Helper()
	a, err := s.Source.Prepare(s.ctx, someContainer, s.Resource, names)
	if err != nil {
		s.Fatalf("prepare %q: %v", names, err)
	}
	return a
}

func (s *sourceTest) begins() {
	if s.Source.Name() == "" {
		s.Error("it has no name")
	}
	snap := s.Source.Snapshot()
	if snap == nil {
		s.Fatal("there is no snapshot before Run")
	}
	if len(snap.Of(s.Resource)) > 0 || len(snap.Places) == 0 {
		s.Errorf("the snapshot before there are devices: %+v", *snap)
	}
	if again := s.Source.Snapshot(); again != snap {
		s.Error("nothing has changed, and it is another snapshot")
	}
}

func (s *sourceTest) ordered() {
	s.have("d1", "d2", "d10")
	snap := s.Source.Snapshot()
	if !slices.IsSorted(snap.Resources) || !slices.IsSortedFunc(snap.Devices, inventory.Compare) || !slices.IsSorted(snap.Awaited) {
		s.Errorf("out of order: %+v", *snap)
	}
	for _, d := range snap.Devices {
		if !slices.Contains(snap.Resources, d.Resource) || d.Origin == "" || !slices.IsSorted(d.Nodes) || !slices.IsSorted(d.NUMA) {
			s.Errorf("device %+v; resources %q", d, snap.Resources)
		}
	}
}

func (s *sourceTest) changes() {
	s.have("d1")
	for _, names := range [][]string{{"d1", "d2"}, {"d2"}, {"d2", "d3"}} {
		before := s.told.Load()
		s.have(names...)
		if s.told.Load() == before {
			s.await("a change is told", func() bool { return s.told.Load() > before }) // it is there a moment before it is told
		}
	}
}

func (s *sourceTest) snapshots() {
	s.have("d1", "d2")
	old := s.Source.Snapshot()
	was := clone(old)
	s.Break(s.T, "d2")
	s.await("d2 is not healthy", func() bool { return slices.Equal(s.healthy(), []string{"d1"}) })
	s.have("d3")
	if !reflect.DeepEqual(clone(old), was) {
		s.Errorf("the snapshot was %+v and is %+v", *was, *old)
	}
}

// clone is a copy that shares nothing.
func clone(s *inventory.Snapshot) *inventory.Snapshot {
	next := &inventory.Snapshot{Places: slices.Clone(s.Places), Resources: slices.Clone(s.Resources), Awaited: slices.Clone(s.Awaited), Devices: slices.Clone(s.Devices), Problems: slices.Clone(s.Problems)}
	for i := range next.Devices {
		d := &next.Devices[i]
		d.Aliases, d.Nodes, d.SharedNodes, d.NUMA = slices.Clone(d.Aliases), slices.Clone(d.Nodes), slices.Clone(d.SharedNodes), slices.Clone(d.NUMA)
	}
	return next
}

func (s *sourceTest) ends() {
	s.have("d1")
	s.stop()
	before := s.told.Load()
	s.Set(s.T, "d1", "d2")
	s.Source.Snapshot()
	_ = s.Source.Check(s.Resource, "d1", false) // it may say what it likes now
	if now := s.told.Load(); now != before {
		s.Errorf("changed was called %d times after the end", now-before)
	}
}

func (s *sourceTest) checks() {
	s.have("d1", "d2")
	for _, inUse := range []bool{false, true} {
		for _, name := range []string{"d1", "d2"} {
			if err := s.Source.Check(s.Resource, name, inUse); err != nil {
				s.Errorf("check %s, in use %v: %v", name, inUse, err)
			}
		}
		for _, unknown := range [][2]string{{s.Resource, "none"}, {"example.com/none", "d1"}} {
			if err := s.Source.Check(unknown[0], unknown[1], inUse); !errors.Is(err, fs.ErrNotExist) {
				s.Errorf("check %s of %s, which there is not: %v", unknown[1], unknown[0], err)
			}
		}
	}
	s.Break(s.T, "d2")
	s.await("d2 is not healthy", func() bool { return slices.Equal(s.healthy(), []string{"d1"}) })
	if err := s.Source.Check(s.Resource, "d2", false); err == nil {
		s.Error("a broken device can be used")
	}
	s.Mend(s.T, "d2")
	s.await("d2 can be used again", func() bool { return s.Source.Check(s.Resource, "d2", false) == nil })
	s.await("d2 is healthy", func() bool { return slices.Equal(s.healthy(), []string{"d1", "d2"}) })
}

func (s *sourceTest) prepares() {
	s.have("d1", "d2")
	one, two := s.prepare("d1"), s.prepare("d2")
	if reflect.DeepEqual(one, answer.Answer{}) || reflect.DeepEqual(one, two) {
		s.Errorf("for d1 the answer is %+v, for d2 %+v", one, two)
	}
	both := s.prepare("d1", "d2")
	if again := s.prepare("d1"); !reflect.DeepEqual(again, one) {
		s.Errorf("asked again it answers %+v, before %+v", again, one)
	}
	if again := s.prepare("d1", "d2"); !reflect.DeepEqual(again, both) {
		s.Errorf("asked again for both it answers %+v, before %+v", again, both)
	}
}

func (s *sourceTest) owned() {
	s.have("d1", "d2")
	names := []string{"d1", "d2"}
	a := s.prepare(names...)
	want := s.prepare(names...)
	if !slices.Equal(names, []string{"d1", "d2"}) {
		s.Errorf("it has changed the names to %q", names)
	}
	for i := range a.CDIDevices {
		a.CDIDevices[i] = "mine"
	}
	for i := range a.Nodes {
		a.Nodes[i].HostPath = "mine"
	}
	for _, m := range []map[string]string{a.Envs, a.Annotations} {
		for k := range maps.Keys(m) {
			m[k] = "mine"
		}
	}
	names[0] = "mine"
	if again := s.prepare("d1", "d2"); !reflect.DeepEqual(again, want) {
		s.Errorf("the caller has changed his answer, and now it is %+v, before %+v", again, want)
	}
}

func (s *sourceTest) givenUp() {
	s.have("d1")
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	for range 20 { // where it notices is chance
		_, err := s.Source.Prepare(ctx, someContainer, s.Resource, []string{"d1"})
		var refused *answer.RefusedError
		if errors.As(err, &refused) {
			s.Fatalf("prepare: %v", err)
		}
	}
	if starter, ok := s.Source.(source.Starter); ok {
		if err := starter.BeforeStart(ctx, someContainer, s.Resource, []string{"d1"}); err != nil && !errdefs.IsUnavailable(err) && !errors.Is(err, context.Canceled) {
			s.Errorf("before a start: %v", err)
		}
	}
	s.prepare("d1") // it is as good as before
}

func (s *sourceTest) advises() {
	adviser, ok := s.Source.(source.Adviser)
	if !ok {
		s.Skip("it has no preferences")
	}
	s.have("d1", "d2", "d3")
	available, must := []string{"d1", "d2", "d3"}, []string{"d2"}
	if got := adviser.Prefer(s.ctx, s.Resource, available, must, 2); got != nil {
		if len(got) != 2 || !slices.Contains(got, "d2") || !slices.Contains(available, got[0]) || !slices.Contains(available, got[1]) || got[0] == got[1] {
			s.Errorf("of %q, with %q, it prefers %q", available, must, got)
		}
	}
	if !slices.Equal(available, []string{"d1", "d2", "d3"}) || !slices.Equal(must, []string{"d2"}) {
		s.Errorf("it has changed what it was asked to %q and %q", available, must)
	}
	if got := adviser.Prefer(s.ctx, "example.com/none", available, nil, 1); got != nil {
		s.Errorf("of a resource that it does not know it prefers %q", got)
	}
}

func (s *sourceTest) starts() {
	starter, ok := s.Source.(source.Starter)
	if !ok {
		s.Skip("it is not told of starts")
	}
	const none = "example.com/none"
	if required, known := starter.StartRequired(none); required || known {
		s.Errorf("required %v, known %v", required, known)
	}
	if err := starter.BeforeStart(s.ctx, someContainer, none, []string{"d1"}); !errdefs.IsUnavailable(err) {
		s.Errorf("before a start: %v", err)
	}
	s.have("d1")
	if required, known := starter.StartRequired(s.Resource); !known {
		s.Error("it is not known whether it wants to be told")
	} else if err := starter.BeforeStart(s.ctx, someContainer, s.Resource, []string{"d1"}); err != nil {
		s.Errorf("before a start (required %v): %v", required, err)
	}
}

func (s *sourceTest) identifies() {
	identifier, ok := s.Source.(source.Identifier)
	if !ok {
		s.Skip("it knows no hardware behind answers")
	}
	if got := identifier.Identify(answer.Answer{}); len(got) > 0 {
		s.Errorf("behind nothing are %q", got)
	}
	node := func(path string) answer.Node {
		return answer.Node{HostPath: path, ContainerPath: path, Permissions: "rw"}
	}
	got := identifier.Identify(answer.Answer{Nodes: []answer.Node{node("/dev/contract-b"), node("/dev/contract-a"), node("/dev/contract-b")}})
	if !slices.Equal(got, []string{"/dev/contract-a", "/dev/contract-b"}) {
		s.Errorf("behind an answer are %q", got)
	}
}

func (s *sourceTest) concurrent() {
	s.have("d1")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				s.Source.Snapshot().Of(s.Resource)
				_ = s.Source.Check(s.Resource, "d1", true)
				if _, err := s.Source.Prepare(s.ctx, someContainer, s.Resource, []string{"d1"}); err != nil {
					s.Errorf("prepare: %v", err)
				}
			}
		})
	}
	for _, names := range [][]string{{"d1", "d2"}, {"d1"}, {"d1", "d3"}} {
		s.Set(s.T, names...)
	}
	wg.Wait()
	s.await("the last devices", func() bool { return slices.Equal(s.healthy(), []string{"d1", "d3"}) })
}
