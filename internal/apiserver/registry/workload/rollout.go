package workload

import (
	"strconv"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateShare checks how many pods there may be too few or too many while others take their place: a number, or a percentage of all. nil is for who has
// no such field set.
func ValidateShare(share *intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	switch {
	case share == nil:
	case share.Type == intstr.Int:
		errs = apivalidation.ValidateNonnegativeField(int64(share.IntVal), path)
	default:
		for _, wrong := range utilvalidation.IsValidPercent(share.StrVal) {
			errs = append(errs, field.Invalid(path, share, wrong))
		}
	}
	return errs
}

// NotMoreThanAll checks a share that cannot be more than 100%.
func NotMoreThanAll(share *intstr.IntOrString, path *field.Path) field.ErrorList {
	if share == nil || share.Type != intstr.String || IsZero(share) || percent(share.StrVal) <= 100 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, share, "must not be greater than 100%")}
}

// IsZero reports whether a share is none.
func IsZero(share *intstr.IntOrString) bool {
	if share == nil {
		return true
	}
	if share.Type == intstr.String {
		return percent(share.StrVal) == 0
	}
	return share.IntVal == 0
}

// percent is the number of a percentage, 0 for what is none, and the largest there is for one that is larger.
func percent(s string) int {
	if len(utilvalidation.IsValidPercent(s)) > 0 {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSuffix(s, "%"))
	return n
}
