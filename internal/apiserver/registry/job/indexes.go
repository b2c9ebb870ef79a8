package job

import (
	"fmt"
	"strconv"
	"strings"
)

// interval is a run of completion indexes, both ends included.
type interval struct{ first, last int }

// parseInterval reads "3" or "5-7", of indexes below completions.
func parseInterval(text string, completions int32) (interval, error) {
	from, to, two := strings.Cut(text, "-")
	first, err := parseIndex(from, completions)
	if err != nil || !two {
		return interval{first, first}, err
	}
	last, err := parseIndex(to, completions)
	if err == nil && first >= last {
		err = fmt.Errorf("the interval %q does not increase", text)
	}
	return interval{first, last}, err
}

func parseIndex(text string, completions int32) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not an index: write them as \"1,3-5,7\"", text)
	}
	if n >= int(completions) {
		return 0, fmt.Errorf("the index %q is too large: there are %d completions", text, completions)
	}
	return n, nil
}

// countIndexes reads "1,3-5,7" and tells how many indexes that are.
func countIndexes(text string, completions int32) (int, error) {
	if text == "" {
		return 0, nil
	}
	count, before := 0, -1
	for part := range strings.SplitSeq(text, ",") {
		in, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if in.first <= before {
			return 0, fmt.Errorf("%d follows %d: indexes have to increase", in.first, before)
		}
		count += in.last - in.first + 1
		before = in.last
	}
	return count, nil
}

// overlap is an index that is in both texts. What cannot be read is passed over: countIndexes tells of it.
func overlap(a, b string, completions int32) (int, bool) {
	as, bs := intervals(a, completions), intervals(b, completions)
	for len(as) > 0 && len(bs) > 0 {
		if as[0].first <= bs[0].last && bs[0].first <= as[0].last {
			return max(as[0].first, bs[0].first), true
		}
		if as[0].first <= bs[0].first {
			as = as[1:]
		} else {
			bs = bs[1:]
		}
	}
	return 0, false
}

func intervals(text string, completions int32) (all []interval) {
	for part := range strings.SplitSeq(text, ",") {
		if in, err := parseInterval(part, completions); err == nil {
			all = append(all, in)
		}
	}
	return all
}
