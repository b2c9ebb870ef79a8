package cgroup

import (
	"reflect"
	"testing"
)

func TestParseNumber(t *testing.T) {
	for raw, want := range map[string]uint64{"0\n": 0, "4096\n": 4096, "max\n": Unlimited, "-1\n": Unlimited, "9223372036854771712\n": Unlimited,
		"4611686018427387903\n": 1<<62 - 1, "18446744073709551615": Unlimited} {
		if n, ok := parseNumber([]byte(raw)); !ok || n != want {
			t.Errorf("%q: %d, %v, want %d", raw, n, ok, want)
		}
	}
	for _, raw := range []string{"", "\n", "x", "1 2", "18446744073709551616", "-2", "0x1"} {
		if n, ok := parseNumber([]byte(raw)); ok {
			t.Errorf("%q: %d, want none", raw, n)
		}
	}
}

func TestParsePressure(t *testing.T) {
	const some = "some avg10=0.08 avg60=0.86 avg300=15.03 total=242723414\n"
	first := Stall{Avg10: 0.08, Avg60: 0.86, Avg300: 15.03, Total: 242723414}
	second := Stall{Avg10: 100, Avg60: 1.5, Total: 7}
	for raw, want := range map[string]*Pressure{
		some: {Some: &first},
		some + "full avg10=100.00 avg60=1.50 avg300=0.00 total=7\n": {Some: &first, Full: &second},
		some + "full avg10=100.00 avg60=1.50 avg300=0.00\n":         {Some: &first},
		some + "later avg10=1.00 avg60=1.00 avg300=1.00 total=1\n":  {Some: &first},
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n":          nil,
		"some avg10=NaN avg60=0.86 avg300=15.03 total=1\n":          nil,
		"some avg10=-1 avg60=0.86 avg300=15.03 total=1\n":           nil,
		"some avg10=1 avg60=1 avg300=1 total=-3\n":                  nil,
		"": nil,
	} {
		if got := parsePressure([]byte(raw)); !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, want %+v", raw, got, want)
		}
	}
}

func TestParseDevices(t *testing.T) {
	v2 := parseIOStat([]byte("8:0 rbytes=90112 wbytes=299008 rios=6 wios=73 dbytes=1 dios=2\n254:1 rbytes=1\n7:0\nnonsense rbytes=3\n"))
	want := []DeviceIO{{Major: 8, ReadBytes: 90112, WriteBytes: 299008, Reads: 6, Writes: 73}, {Major: 254, Minor: 1, ReadBytes: 1}}
	if !reflect.DeepEqual(v2, want) {
		t.Errorf("io.stat: %+v, want %+v", v2, want)
	}
	v1 := parseBlkio([]byte("8:0 Read 90112\n8:0 Write 299008\n8:0 Sync 1\n254:1 Read 1\n8:0 Total 389120\nTotal 389121\n"), true, nil)
	v1 = parseBlkio([]byte("8:0 Read 6\n8:0 Write 73\nTotal 79\n"), false, v1)
	if !reflect.DeepEqual(v1, want) {
		t.Errorf("blkio: %+v, want %+v", v1, want)
	}
}

func TestParseStats(t *testing.T) {
	var c CPUStats
	cpuStatV2([]byte("usage_usec 12\nuser_usec 7\nsystem_usec 5\nnr_periods 4\nnr_throttled 2\nthrottled_usec 9\nnr_bursts 1\n"), &c)
	if want := (CPUStats{Usage: 12000, User: 7000, System: 5000, Periods: 4, Throttled: 2, ThrottledTime: 9000, HasTimes: true, HasBandwidth: true}); c != want {
		t.Errorf("cpu.stat: %+v, want %+v", c, want)
	}
	var v2, v1 MemoryStats
	memoryStatV2([]byte("anon 100\nfile 50\nkernel 10\nfile_mapped 20\ninactive_file 30\nanon_thp 5\npgfault 9\npgmajfault 3\n"), &v2)
	if want := (MemoryStats{RSS: 100, Cache: 50, Kernel: 10, HasKernel: true, MappedFile: 20, InactiveFile: 30, PageFaults: 9, MajorPageFaults: 3}); v2 != want {
		t.Errorf("v2: %+v, want %+v", v2, want)
	}
	limited, swap := memoryStatV1([]byte("hierarchical_memory_limit 4096\nhierarchical_memsw_limit 9223372036854771712\nrss 1\ncache 1\ninactive_file 1\ntotal_cache 50\ntotal_rss 100\ntotal_mapped_file 20\ntotal_swap 4\n"+
		"total_pgfault 9\ntotal_pgmajfault 3\ntotal_inactive_file 30\n"), &v1)
	if want := (MemoryStats{RSS: 100, Cache: 50, MappedFile: 20, SwappedOut: 4, InactiveFile: 30, PageFaults: 9, MajorPageFaults: 3}); v1 != want {
		t.Errorf("v1: %+v, want %+v", v1, want)
	}
	if !limited || swap != swapUnlimited {
		t.Errorf("v1: limited %v, swap %v", limited, swap)
	}
	limited, swap = memoryStatV1([]byte("hierarchical_memory_limit 9223372036854771712\n"), &v1)
	if limited || swap != swapNotCounted {
		t.Errorf("v1 without limits: limited %v, swap %v", limited, swap)
	}
	if _, swap = memoryStatV1([]byte("hierarchical_memsw_limit 8192\n"), &v1); swap != swapLimited {
		t.Errorf("v1 with limited swap: %v", swap)
	}
	if m := (MemoryStats{Usage: 10, InactiveFile: 30}); m.WorkingSet() != 0 {
		t.Errorf("working set %d of a cgroup with more inactive cache than it uses by now", m.WorkingSet())
	}
	if m := (MemoryStats{Usage: 100, InactiveFile: 30}); m.WorkingSet() != 70 {
		t.Errorf("working set %d, want 70", m.WorkingSet())
	}
	if quota, period, ok := parseCPUMax([]byte("max 100000\n")); !ok || quota != Unlimited || period != 100000 {
		t.Errorf("cpu.max: %d %d %v", quota, period, ok)
	}
	if _, _, ok := parseCPUMax([]byte("50000\n")); ok {
		t.Error("half a cpu.max is taken")
	}
}

func TestSharesOfWeights(t *testing.T) {
	for w := uint64(1); w <= 10000; w++ {
		if got := weight(sharesOf(w)); got < w {
			t.Fatalf("weight %d is %d shares, whose weight is %d", w, sharesOf(w), got)
		}
	}
	for w, want := range map[uint64]uint64{1: 2, 10000: 262144} {
		if got := sharesOf(w); got != want {
			t.Errorf("weight %d is %d shares, want %d", w, got, want)
		}
	}
	if got := sharesOf(weight(1024)); got > 1024 || got < 1000 {
		t.Errorf("1024 shares come back as %d", got)
	}
}

// Whatever the kernel of tomorrow writes, the parsers neither panic nor invent a line.
func FuzzParseStats(f *testing.F) {
	for _, seed := range []string{
		"some avg10=0.08 avg60=0.86 avg300=15.03 total=242723414\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
		"8:0 rbytes=90112 wbytes=299008 rios=6 wios=73 dbytes=0 dios=0\n", "8:0 Read 90112\n8:0 Write 1\nTotal 90113\n", "max 100000\n", "-1\n",
		"usage_usec 12\nuser_usec 7\nsystem_usec 5\n", "anon 100\nfile 50\n", "total_rss 1\n", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", "\x00=\n:\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		lines := 1
		for _, c := range raw {
			if c == '\n' {
				lines++
			}
		}
		if n := len(parseIOStat(raw)); n > lines {
			t.Errorf("%d devices of %d lines", n, lines)
		}
		if n := len(parseBlkio(raw, true, parseBlkio(raw, false, nil))); n > lines {
			t.Errorf("%d devices of %d lines", n, lines)
		}
		if p := parsePressure(raw); p != nil && (p.Some == nil || p.Some.Avg10 < 0 || p.Some.Avg10 != p.Some.Avg10) {
			t.Errorf("pressure %+v", p)
		}
		cpuStatV2(raw, &CPUStats{})
		var m MemoryStats
		memoryStatV1(raw, &m)
		memoryStatV2(raw, &m)
		if m.WorkingSet() > m.Usage {
			t.Errorf("working set %d of %d", m.WorkingSet(), m.Usage)
		}
		parseNumber(raw)
		parseCPUMax(raw)
	})
}
