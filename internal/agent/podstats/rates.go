package podstats

import "time"

// sample is a reading of a counter of processor time, in nanoseconds.
type sample struct {
	at    time.Time
	usage uint64
}

// leastInterval is between two samples that a rate is made of: counters are brought up to date at the kernel's pace.
const leastInterval = 100 * time.Millisecond

// rate is what was used between two samples, in billionths of a processor. A counter that has gone back is another one's: there is no rate.
func rate(old, now sample) (nanoCores uint64, ok bool) {
	interval := now.at.Sub(old.at)
	if interval < leastInterval || now.usage < old.usage {
		return 0, false
	}
	return uint64(float64(now.usage-old.usage) / interval.Seconds()), true
}

// rates remembers, by whatever is counted, the last sample and the rate that it gave.
type rates map[string]reading

type reading struct {
	sample
	rate  uint64
	rated bool
}

// next are the rates of new samples, and what is to be remembered of them. A sample that is as old as the last one, because whoever reads the
// counter has read it only once, has the last one's rate.
func (old rates) next(samples map[string]sample) rates {
	all := make(rates, len(samples))
	for id, now := range samples {
		r := reading{sample: now}
		before, known := old[id]
		switch {
		case known && now.at.Sub(before.at) < leastInterval && now.usage >= before.usage:
			r = before
		case known:
			r.rate, r.rated = rate(before.sample, now)
		}
		all[id] = r
	}
	return all
}
