package usage

import (
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	var m Machine
	for _, c := range []struct {
		parse func(string, *Machine) error
		raw   string
	}{
		{parseStat, "cpu  1 2 3 1000 500 4 5 600 7 8\ncpu0 1 2 3 4 5 6 7 8 9 10\nctxt 5\nbtime 1700000000\n"},
		{parseMeminfo, "MemTotal:  100 kB\nMemFree:  40 kB\nMemAvailable:  70 kB\nInactive(file):  25 kB\nAnonPages: 10 kB\nSwapTotal: 8 kB\nSwapFree: 3 kB\nHugePages_Total: 0\n"},
		{parseVMStat, "pgfault 9\npgmajfault 2\nother 1\n"},
		{parseLoad, "0.20 0.18 0.12 1/80 11206\n"},
		{parsePIDMax, "4194304\n"},
	} {
		if err := c.parse(c.raw, &m); err != nil {
			t.Error(err)
		}
		for _, bad := range []string{"cpu  x 2 3 1000 500 4 5 600\n", "MemTotal: x kB\n", "pgfault x\n", "0.20 0.18 0.12 1 1\n"} {
			var none Machine
			if err := c.parse(bad, &none); err == nil && none.CPU+none.Memory.Total+none.Threads+none.MaxThreads > 0 {
				t.Errorf("%q was taken for %+v", bad, none)
			}
		}
	}
	want := Machine{
		Boot: time.Unix(1700000000, 0), CPU: 150e6, Memory: Memory{Total: 100 << 10, Used: 60 << 10, Available: 70 << 10, InactiveFile: 25 << 10, Anonymous: 10 << 10},
		Swap: Swap{Total: 8 << 10, Free: 3 << 10}, PageFaults: 9, MajorPageFaults: 2, Threads: 80, MaxThreads: 4194304,
	}
	if m != want || m.Memory.WorkingSet() != 35<<10 {
		t.Errorf("%+v, want %+v", m, want)
	}
}

const devices = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       1    0    0    0     0          0         0        1       1    0    0    0     0       0          0
  mp0: 5 6 7 8 0 0 0 0 9 10 11 12 0 0 0 0
veth1a2b: 5 6 7 8 0 0 0 0 9 10 11 12 0 0 0 0
 ens3: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0
`

func TestInterfaces(t *testing.T) {
	all := parseInterfaces(devices)
	first(all, defaultRoute("Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\nmp0\t0000400A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\nens3\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"))
	want := Interface{"ens3", 1, 2, 3, 4, 5, 6, 7, 8}
	if len(all) != 2 || all[0] != want || all[1].Name != "mp0" || all[1].TxDropped != 12 {
		t.Errorf("%+v", all)
	}
}

func TestOfThisMachine(t *testing.T) {
	m, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if m.Memory.Used == 0 || m.Memory.WorkingSet() > m.Memory.Total || m.Threads == 0 || m.Threads > m.MaxThreads || m.Boot.After(m.At) {
		t.Errorf("%+v", m)
	}
	if _, err := Interfaces(); err != nil {
		t.Error(err)
	}
	d, err := DiskOf(t.TempDir())
	if err != nil || d.Capacity == 0 || d.Used() > d.Capacity {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := DiskOf("/no/such/place"); err == nil {
		t.Error("a path that is not there has a file system")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cpu  1 2 3 1000 500 4 5 600 7 8\n")
	f.Add(devices)
	f.Add("0.20 0.18 0.12 1/80 11206\n")
	f.Fuzz(func(_ *testing.T, raw string) {
		var m Machine
		for _, parse := range []func(string, *Machine) error{parseStat, parseMeminfo, parseVMStat, parseLoad, parsePIDMax} {
			_ = parse(raw, &m) // it may fail, and must not panic
		}
		first(parseInterfaces(raw), defaultRoute(raw))
	})
}
