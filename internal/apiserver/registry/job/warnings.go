package job

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	podvalidation "monopod.dev/monopod/internal/pods/validation"
)

func warn(j *batchv1.Job) []string {
	return append(NameWarnings(j.Name), SpecWarnings(&j.Spec, field.NewPath("spec"))...)
}

func warnUpdate(j, old *batchv1.Job) []string {
	if j.Generation == old.Generation {
		return nil
	}
	return SpecWarnings(&j.Spec, field.NewPath("spec"))
}

// NameWarnings tells what is to be said of the name of what makes pods.
func NameWarnings(name string) []string {
	wrong := validation.IsDNS1123Label(name)
	if len(wrong) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: %v", wrong)}
}

// SpecWarnings tells what is legal in a job's specification, but hardly meant. path is where it stands.
func SpecWarnings(spec *batchv1.JobSpec, path *field.Path) []string {
	var list []string
	if isIndexed(spec) && ptr.Deref(spec.Completions, 0) > manyCompletions && ptr.Deref(spec.Parallelism, 0) > maxOfMany {
		list = append(list, fmt.Sprintf("%s: with more than %d completions and a parallelism above %d, not all of completedIndexes may be kept when many indexes fail",
			path, manyCompletions, maxOfMany))
	}
	return append(list, podvalidation.Warnings(&spec.Template.Spec, path.Child("template", "spec"))...)
}
