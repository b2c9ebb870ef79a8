package inventory

import (
	"cmp"
	"strings"
)

// CompareNames orders names as people count: "gpu2" before "gpu10". Names that differ only in leading zeros are told
// apart by their bytes, so the order is total and does not depend on where a name stood in a file.
func CompareNames(a, b string) int {
	resta, restb := a, b
	for resta != "" && restb != "" {
		var ta, tb string
		ta, resta = token(resta)
		tb, restb = token(restb)
		if c := compareTokens(ta, tb); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(resta), len(restb)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// token cuts a run of digits, or one other byte, off the front of s, which is not empty.
func token(s string) (tok, rest string) {
	n := 1
	if isDigit(s[0]) {
		for n < len(s) && isDigit(s[n]) {
			n++
		}
	}
	return s[:n], s[n:]
}

func compareTokens(a, b string) int {
	if !isDigit(a[0]) || !isDigit(b[0]) {
		return cmp.Compare(a[0], b[0])
	}
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}
