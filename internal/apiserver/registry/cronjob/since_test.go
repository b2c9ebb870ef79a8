package cronjob

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
)

// TestScheduleSince: a cron job knows since when it has had its schedule, whatever a client writes.
func TestScheduleSince(t *testing.T) {
	const before, forged = "2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z"
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	const edited = "2026-01-02T02:04:05Z"
	cronJob := func(since, schedule string, zone *string) *batchv1.CronJob {
		c := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: schedule, TimeZone: zone}}
		if since != "" {
			c.Annotations = map[string]string{scheduleSince: since}
		}
		return c
	}
	utc := func() *string { return ptr.To("Etc/UTC") }
	of := Resource()
	for name, c := range map[string]struct {
		old, update *batchv1.CronJob
		want        string
	}{
		"nothing changes":        {cronJob("", "0 * * * *", nil), cronJob("", "0 * * * *", nil), ""},
		"another schedule":       {cronJob("", "0 * * * *", nil), cronJob("", "1 * * * *", nil), edited},
		"another again":          {cronJob(before, "0 * * * *", nil), cronJob(before, "1 * * * *", nil), edited},
		"a zone":                 {cronJob(before, "0 * * * *", nil), cronJob(before, "0 * * * *", utc()), edited},
		"the same zone":          {cronJob(before, "0 * * * *", utc()), cronJob(before, "0 * * * *", utc()), before},
		"a client leaves it out": {cronJob(before, "0 * * * *", nil), cronJob("", "0 * * * *", nil), before},
		"a client sets it":       {cronJob("", "0 * * * *", nil), cronJob(forged, "0 * * * *", nil), ""},
		"a client changes it":    {cronJob(before, "0 * * * *", nil), cronJob(forged, "0 * * * *", nil), before},
		"a client changes both":  {cronJob(before, "0 * * * *", nil), cronJob(forged, "1 * * * *", nil), edited},
		"it is suspended, resumed": {cronJob(before, "0 * * * *", nil), func() *batchv1.CronJob {
			c := cronJob(before, "0 * * * *", nil)
			c.Spec.Suspend = ptr.To(true)
			return c
		}(), before},
	} {
		t.Run(name, func(t *testing.T) {
			status := c.update.DeepCopy()
			status.Spec = c.old.Spec
			keepSince(c.update, c.old, now)
			if got := c.update.Annotations[scheduleSince]; got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			of.Status.Prepare(status, c.old)
			if got, want := status.Annotations[scheduleSince], c.old.Annotations[scheduleSince]; got != want {
				t.Errorf("with a status: got %q, want %q", got, want)
			}
		})
	}
	made := cronJob(forged, "0 * * * *", nil)
	if of.Prepare(made); len(made.Annotations) != 0 {
		t.Errorf("a new one has %v", made.Annotations)
	}
	updated := cronJob("", "1 * * * *", nil)
	if of.PrepareUpdate(updated, cronJob("", "0 * * * *", nil)); updated.Annotations[scheduleSince] == "" {
		t.Error("an update does not say it")
	}
}
