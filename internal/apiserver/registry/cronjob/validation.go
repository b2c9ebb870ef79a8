package cronjob

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/job"
	"monopod.dev/monopod/internal/apiserver/registry/workload"
)

// maxName leaves room in the name of a job (63) for a dash and the minute at which it was due.
const maxName = 52

func validate(c *batchv1.CronJob) field.ErrorList {
	errs := validateSpec(&c.Spec, nil)
	if len(c.Name) > maxName {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, "must be no more than 52 characters"))
	}
	return errs
}

// validateUpdate tells what is wrong with a cron job that replaces old. A name that is too long is there already.
func validateUpdate(c, old *batchv1.CronJob) field.ErrorList { return validateSpec(&c.Spec, &old.Spec) }

// validateSpec tells what is wrong with a specification. old is the one that it replaces; nil: it is new.
func validateSpec(spec, old *batchv1.CronJobSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateSchedule(spec, old, path.Child("schedule"))
	if old == nil || !ptr.Equal(spec.TimeZone, old.TimeZone) {
		errs = append(errs, validateTimeZone(spec.TimeZone, path.Child("timeZone"))...)
	}
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	if !slices.Contains(policies, spec.ConcurrencyPolicy) {
		errs = append(errs, field.NotSupported(path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy, policies))
	}
	if s := spec.StartingDeadlineSeconds; s != nil {
		errs = append(errs, apivalidation.ValidateNonnegativeField(*s, path.Child("startingDeadlineSeconds"))...)
	}
	errs = append(errs, workload.NotNegative(path, workload.Optional("successfulJobsHistoryLimit", spec.SuccessfulJobsHistoryLimit),
		workload.Optional("failedJobsHistoryLimit", spec.FailedJobsHistoryLimit))...)
	var template *batchv1.JobTemplateSpec
	if old != nil {
		template = &old.JobTemplate
	}
	return append(errs, job.ValidateTemplate(&spec.JobTemplate, template, path.Child("jobTemplate"))...)
}

func warn(c *batchv1.CronJob) []string {
	return append(workload.NameWarnings(c.Name), job.SpecWarnings(&c.Spec.JobTemplate.Spec, specPath())...)
}

func warnUpdate(c, old *batchv1.CronJob) (list []string) {
	if c.Generation != old.Generation {
		list = job.SpecWarnings(&c.Spec.JobTemplate.Spec, specPath())
	}
	if hasZone(c.Spec.Schedule) {
		list = append(list, "spec.schedule: TZ and CRON_TZ are not supported there: say the time zone in spec.timeZone")
	}
	return list
}

func specPath() *field.Path { return field.NewPath("spec", "jobTemplate", "spec") }
