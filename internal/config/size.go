package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

func (v *faults) logRotation(sizeKey, size, filesKey string, files int32) {
	if files < leastLogFiles {
		v.add(filesKey, files, fmt.Sprintf("be at least %d", leastLogFiles))
	}
	if size == "" {
		return // it depends on the role
	}
	if n, err := ParseSize(size); err != nil || n != 0 && n < leastLogSize {
		v.add(sizeKey, size, fmt.Sprintf(`be "0" (never) or a size of at least %dKi, such as "10Mi"`, leastLogSize>>10))
	}
}
