package controllers

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// written is a Lease in memory. From the first renewal on nothing that writes is answered, and another process has it: so it is for one that was stopped in the
// midst of a renewal, and goes on when its time is over.
type written struct {
	resourcelock.Interface
	mu     sync.Mutex
	is     resourcelock.LeaderElectionRecord
	writes int
}

func (r *written) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.is
	raw, err := json.Marshal(is)
	return &is, raw, err
}

func (r *written) Update(ctx context.Context, is resourcelock.LeaderElectionRecord) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writes++; r.writes == 2 {
		r.is.HolderIdentity = "another"
		<-ctx.Done()
		return ctx.Err()
	}
	r.is = is
	return nil
}

func (*written) Identity() string   { return "one" }
func (*written) Describe() string   { return "lease" }
func (*written) RecordEvent(string) {}

// Who lost the Lease while it did not look does not let go what another has by then.
func TestTheLeaseOfAnotherStays(t *testing.T) {
	var lease written
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: t.Name(), Lock: &renewed{Interface: &lease, fence: &fence{time: time.Minute}, time: time.Minute},
		LeaseDuration: 1500 * time.Millisecond, RenewDeadline: time.Second, RetryPeriod: 100 * time.Millisecond, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	elector.Run(t.Context())
	if lease.is.HolderIdentity != "another" || lease.writes != 2 {
		t.Errorf("%q has the lease after %d writes, want another", lease.is.HolderIdentity, lease.writes)
	}
}
