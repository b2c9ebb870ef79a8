// Package binarysize says numbers of bytes as people read them, in the binary units of Kubernetes' quantities.
package binarysize

import (
	"strconv"
	"strings"
)

// Text is a number of bytes in the largest unit that leaves something before the point, with at most one digit behind it: 1.5Gi.
func Text(bytes int64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	n, unit := float64(bytes), 0
	for n >= 1024 && unit < len(units)-1 {
		n, unit = n/1024, unit+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(n, 'f', 1, 64), ".0") + units[unit]
}
