package cronjob

import (
	"fmt"
	"sort"
	"strings"
	"time"
	_ "time/tzdata" // which time zones there are must not depend on the host's files

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// manyMissed is how many times in a row may be missed before people are told that something is wrong.
const manyMissed = 100

// scheduleSince is the annotation in which the API server says since when a cron job has had its schedule and time zone (internal/apiserver/registry/cronjob, which
// lets nobody else write it). Another API server's cron jobs have none.
const scheduleSince = "monopod.dev/schedule-since"

// schedule are the times of a cron job.
type schedule struct {
	cron.Schedule
	// anchor is the time after which the first one comes.
	anchor time.Time
}

// parse reads the schedule of a cron job, which may name a time zone that is none of its field.
func parse(cj *batchv1.CronJob) (s schedule, err error) {
	defer func() { // the library does not mind that there may be no blank behind TZ=...
		if failed := recover(); failed != nil {
			err = fmt.Errorf("it cannot be read: %v", failed)
		}
	}()
	text := cj.Spec.Schedule
	if zone := cj.Spec.TimeZone; zone != nil && !hasZone(text) {
		text = "TZ=" + *zone + " " + text
	}
	s.anchor = cj.CreationTimestamp.Time
	if cj.Status.LastScheduleTime != nil {
		s.anchor = cj.Status.LastScheduleTime.Time
	}
	// Nobody has ever planned a moment of this schedule that was before it. (What is no time there is nobody's word: it counts for nothing.)
	if since, err := time.Parse(time.RFC3339, cj.Annotations[scheduleSince]); err == nil && since.After(s.anchor) {
		s.anchor = since
	}
	s.Schedule, err = cron.ParseStandard(text)
	return s, err
}

func hasZone(text string) bool { return strings.Contains(text, "TZ") }

// last is the last of the times up to now; zero: there is none.
func (s schedule) last(now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok { // its times are counted from the anchor on
		if n := now.Sub(s.anchor) / every.Delay; n > 0 {
			return s.anchor.Add(n * every.Delay)
		}
		return time.Time{}
	}
	// The time after a second is now or before for all seconds before the one that is looked for, and for no other ones.
	seconds := int(now.Sub(s.anchor)/time.Second) + 1
	n := sort.Search(max(seconds, 0), func(i int) bool { return !s.by(s.anchor.Add(time.Duration(i)*time.Second), now) })
	if n == 0 {
		return time.Time{}
	}
	return s.Next(s.anchor.Add(time.Duration(n-1) * time.Second))
}

// by says whether there is a time after one moment, and up to another one.
func (s schedule) by(after, until time.Time) bool {
	t := s.Next(after)
	return !t.IsZero() && !t.After(until)
}

// next is the first of the times after now; zero: there will be none.
func (s schedule) next(now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		n := max(0, now.Sub(s.anchor)/every.Delay)
		return s.anchor.Add((n + 1) * every.Delay)
	}
	return s.Next(now)
}

// missedMany says whether more times than people would expect have gone by since a moment.
func (s schedule) missedMany(since, now time.Time) bool {
	n := 0
	for ; n <= manyMissed && s.by(since, now); n++ {
		since = s.Next(since)
	}
	return n > manyMissed
}
