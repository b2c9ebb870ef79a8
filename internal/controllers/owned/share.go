package owned

import (
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Share is how many of so many pods a number, or a percentage, is, rounded up or down. There is no bound on the percentage that a user writes: the most it comes to is
// what a number of pods can be. What is neither, which no API server lets in, is 0, and so is nil.
func Share(of *intstr.IntOrString, all int, up bool) int {
	if of == nil {
		return 0
	}
	if of.Type == intstr.Int {
		return int(of.IntVal)
	}
	text, is := strings.CutSuffix(of.StrVal, "%")
	percent, err := strconv.ParseUint(text, 10, 64)
	if numError, ok := err.(*strconv.NumError); ok && numError.Err == strconv.ErrRange { //nolint:errorlint // it is not wrapped
		percent, err = math.MaxUint64, nil
	}
	if !is || err != nil {
		return 0
	}
	n := float64(percent) * float64(all) / 100
	if up {
		n = math.Ceil(n)
	}
	return int(min(n, math.MaxInt32))
}
