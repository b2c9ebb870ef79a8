package job

import (
	"slices"
	"strconv"
	"strings"
)

// interval is a run of completion indexes, both ends included.
type interval struct{ first, last int }

// indexes are completion indexes as intervals, in order, with a gap between any two.
type indexes []interval

// parseIndexes reads what String writes, and leaves out what is not below completions: a job may have been made smaller. What cannot be read is passed over.
func parseIndexes(text string, completions int) indexes {
	var all indexes
	for part := range strings.SplitSeq(text, ",") {
		from, to, two := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil || first < 0 || first >= completions {
			continue
		}
		last := first
		if two {
			if last, err = strconv.Atoi(to); err != nil || last < first {
				continue
			}
		}
		all = append(all, interval{first, min(last, completions-1)})
	}
	return indexes(nil).with(all)
}

// indexesOf are single indexes.
func indexesOf(all map[int]bool) indexes {
	var found indexes
	for i := range all {
		found = append(found, interval{i, i})
	}
	return indexes(nil).with(found)
}

// with are the indexes that are in one of the two. More may be in any order, and overlap.
func (x indexes) with(more indexes) indexes {
	all := slices.Concat(x, more)
	slices.SortFunc(all, func(a, b interval) int { return a.first - b.first })
	var merged indexes
	for _, in := range all {
		if n := len(merged); n > 0 && in.first <= merged[n-1].last+1 {
			merged[n-1].last = max(merged[n-1].last, in.last)
		} else {
			merged = append(merged, in)
		}
	}
	return merged
}

func (x indexes) count() (n int) {
	for _, in := range x {
		n += in.last - in.first + 1
	}
	return n
}

func (x indexes) has(index int) bool {
	at, exact := slices.BinarySearchFunc(x, index, func(in interval, index int) int { return in.first - index })
	return exact || at > 0 && x[at-1].last >= index
}

// common is how many indexes are in both.
func (x indexes) common(y indexes) (n int) {
	for len(x) > 0 && len(y) > 0 {
		n += max(0, min(x[0].last, y[0].last)-max(x[0].first, y[0].first)+1)
		if x[0].last < y[0].last {
			x = x[1:]
		} else {
			y = y[1:]
		}
	}
	return n
}

// missing are the first few indexes below completions that are not among these.
func (x indexes) missing(few, completions int) (found []int) {
	next := 0
	for _, in := range append(slices.Clone(x), interval{completions, completions}) {
		for ; next < in.first && next < completions && len(found) < few; next++ {
			found = append(found, next)
		}
		next = in.last + 1
	}
	return found
}

// String is the form that a job's status has them in: "1,3-5,7". Two neighbours are "3,4".
func (x indexes) String() string {
	var text strings.Builder
	for i, in := range x {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strconv.Itoa(in.first))
		if in.last > in.first {
			separator := byte('-')
			if in.last == in.first+1 {
				separator = ','
			}
			text.WriteByte(separator)
			text.WriteString(strconv.Itoa(in.last))
		}
	}
	return text.String()
}
