package machine

import (
	"fmt"
	"sync"
	"time"
)

// tscArg is the kernel's parameter that tells the frequency of the time-stamp counter. The emulator's counter is the host's own. The kernel would find its
// frequency by a timer that the emulator has to serve in time: beside other work it was seen to take it for a fifteenth of what it is, and time in the machine
// ran as much faster as it is on the wall, so that time-outs fired which were not over.
func tscArg(architecture string) string {
	if architecture != "" && architecture != NativeArch {
		return ""
	}
	if khz := tscKHz(); khz > 0 {
		return fmt.Sprintf(" tsc_early_khz=%d", khz)
	}
	return ""
}

// tscKHz is the frequency of this host's time-stamp counter in kHz, by the host's clock; 0: it has none.
var tscKHz = sync.OnceValue(func() int64 {
	begin := time.Now()
	ticks, at := sampleTSC(begin)
	// Or longer: it is measured. A microsecond of error at either end is a hundred-thousandth.
	time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a time that is measured, not waited for
	moreTicks, later := sampleTSC(begin)
	khz := int64(float64(moreTicks-ticks) / float64(later-at) * 1e6)
	if khz < 100_000 || khz > 10_000_000 {
		return 0 // no processor has such a one
	}
	return khz
})

// sampleTSC reads the counter, and the time since begin at which it had that value: the best of several readings, as any of them may be interrupted.
func sampleTSC(begin time.Time) (ticks uint64, at time.Duration) {
	best := time.Duration(-1)
	for range 100 {
		before := time.Since(begin)
		now := readTSC()
		took := time.Since(begin) - before
		if best < 0 || took < best {
			best, ticks, at = took, now, before+took/2
		}
	}
	return ticks, at
}
