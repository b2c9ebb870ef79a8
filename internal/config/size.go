package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"monopod.dev/monopod/api/config/v1alpha1"
)

// units are the suffixes of a size, and by how much they shift it.
var units = map[string]int{"Ki": 10, "Mi": 20, "Gi": 30, "": 0}

// ParseSize reads a number of bytes, with Ki, Mi or Gi: "10Mi".
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGi")
	shift, ok := units[strings.TrimPrefix(s, digits)]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("%q is no size: use a number of bytes, or one with Ki, Mi or Gi", s)
	}
	return n << shift, nil
}

// A log's file has room for some lines of the largest size (16 KiB), and a log for the file before the present one.
const (
	leastLogSize  = 64 << 10
	leastLogFiles = 2
)

// The quota of the API's store: enough for etcd to work with, and not more than it works well with.
const (
	leastQuota = 16 << 20
	mostQuota  = 8 << 30
)

func (v *faults) logRotation(r v1alpha1.LogRotation) {
	if r.MaxFiles < leastLogFiles {
		v.add("runtime.logRotation.maxFiles", r.MaxFiles, fmt.Sprintf("be at least %d", leastLogFiles))
	}
	if r.MaxSize == "" {
		return // it depends on the role
	}
	if n, err := ParseSize(r.MaxSize); err != nil || n != 0 && n < leastLogSize {
		v.add("runtime.logRotation.maxSize", r.MaxSize, fmt.Sprintf(`be "0" (never) or a size of at least %dKi, such as "10Mi"`, leastLogSize>>10))
	}
}
