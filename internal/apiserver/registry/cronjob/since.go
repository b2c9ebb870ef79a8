package cronjob

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
)

// scheduleSince is the annotation that says since when a cron job has had its schedule and time zone, where that is not since it was made. Whoever commits the
// change knows it, and nobody else does: the controller may see the change long after, as when it does not run. It is not the clients' to say.
// (The controller has the name, too: internal/controllers/cronjob.)
const scheduleSince = "monopod.dev/schedule-since"

// keepSince gives a cron job that replaces old the annotation: a new one with a new schedule, else the one that is there.
func keepSince(c, old *batchv1.CronJob, now time.Time) {
	since := old.Annotations[scheduleSince]
	if c.Spec.Schedule != old.Spec.Schedule || !ptr.Equal(c.Spec.TimeZone, old.Spec.TimeZone) {
		since = now.UTC().Format(time.RFC3339)
	}
	if since == "" {
		delete(c.Annotations, scheduleSince)
		return
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[scheduleSince] = since
}
