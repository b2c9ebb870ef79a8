package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"monopod.dev/monopod/internal/apiserver/registry/workload"
	podvalidation "monopod.dev/monopod/internal/pods/validation"
)

func warn(j *batchv1.Job) []string {
	return append(workload.NameWarnings(j.Name), SpecWarnings(&j.Spec, field.NewPath("spec"))...)
}

func warnUpdate(j, old *batchv1.Job) []string {
	if j.Generation == old.Generation {
		return nil
	}
	return SpecWarnings(&j.Spec, field.NewPath("spec"))
}

// SpecWarnings tells what is legal in a job's specification, but hardly meant. path is where it stands.
func SpecWarnings(spec *batchv1.JobSpec, path *field.Path) []string {
	var list []string
	if isIndexed(spec) && ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > maxOfMany {
		list = append(list, fmt.Sprintf("%s: with more than %d completions and a parallelism above %d, not all of completedIndexes may be kept when many indexes fail",
			path, manyCompletions, maxOfMany))
	}
	return append(list, podvalidation.TemplateWarnings(&spec.Template, path.Child("template"))...)
}
