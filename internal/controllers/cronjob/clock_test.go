package cronjob

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// TestJumps: it ends with its context. That the kernel tells of a clock that is set no test can try on a host that others use.
func TestJumps(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- jumps(ctx, func() {}) }()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
}

// TestClockIsPutForward: a cron job whose time has come because the clock was set, or the machine has slept, runs at once.
func TestClockIsPutForward(t *testing.T) {
	var mu sync.Mutex
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	client := fake.NewClientset(&batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n", UID: "c", CreationTimestamp: metav1.Time{Time: now.Add(-time.Hour)}},
		Spec:       batchv1.CronJobSpec{Schedule: "0 18 * * *", TimeZone: ptr.To("Etc/UTC")},
	})
	made, err := client.BatchV1().Jobs("n").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer made.Stop()
	jump, looked := make(chan func(), 1), make(chan struct{}, 100)
	of := informers.NewSharedInformerFactory(client, 0)
	c, err := New(Config{
		Client: client, CronJobs: of.Batch().V1().CronJobs(), Jobs: of.Batch().V1().Jobs(), Events: &record.FakeRecorder{}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			looked <- struct{}{}
			return now
		},
		Jumps: func(ctx context.Context, jumped func()) error {
			jump <- jumped
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	of.Start(ctx.Done())
	var all sync.WaitGroup
	all.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer all.Wait()
	defer of.Shutdown()
	defer cancel()
	jumped := <-jump
	<-looked
	mu.Lock()
	now = now.Add(8 * time.Hour)
	mu.Unlock()
	jumped()
	select {
	case e := <-made.ResultChan():
		if j, ok := e.Object.(*batchv1.Job); e.Type != watch.Added || !ok || j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] != "2030-01-01T18:00:00Z" {
			t.Errorf("%s %+v", e.Type, e.Object)
		}
	case <-time.After(time.Minute):
		t.Fatal("no job is made when the clock was put forward")
	}
}
