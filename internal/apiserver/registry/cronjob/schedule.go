package cronjob

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // which time zones there are must not depend on the host's files

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateSchedule tells what is wrong with a schedule. One that names a time zone, which only the cron library knows of, is let be where it was so before
// there was a field for it.
func validateSchedule(spec, old *batchv1.CronJobSpec, path *field.Path) field.ErrorList {
	schedule := spec.Schedule
	switch {
	case schedule == "":
		return field.ErrorList{field.Required(path, "")}
	case hasZone(schedule) && (old == nil || !hasZone(old.Schedule)):
		return field.ErrorList{field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")}
	case hasZone(schedule) && spec.TimeZone != nil:
		return field.ErrorList{field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")}
	}
	if err := parse(schedule); err != nil {
		return field.ErrorList{field.Invalid(path, schedule, err.Error())}
	}
	return nil
}

func hasZone(schedule string) bool { return strings.Contains(schedule, "TZ") }

// parse tells what is wrong with a schedule in itself.
func parse(schedule string) (err error) {
	defer func() { // the library looks for the blank behind TZ=..., and does not mind that there may be none
		if failed := recover(); failed != nil {
			err = fmt.Errorf("it cannot be read: %v", failed)
		}
	}()
	_, err = cron.ParseStandard(schedule)
	return err
}

// zonePart is a part of the name of a time zone, between slashes: no path out of the folder of zones.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	refuse := func(message string) field.ErrorList { return field.ErrorList{field.Invalid(path, *zone, message)} }
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return refuse("timeZone must be nil or non-empty string")
	case strings.EqualFold(*zone, "Local"):
		return refuse("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	for part := range strings.SplitSeq(*zone, "/") {
		if part == "." || part == ".." || !zonePart.MatchString(part) {
			return refuse("unknown time zone " + *zone)
		}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return refuse(err.Error())
	}
	return nil
}
