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
